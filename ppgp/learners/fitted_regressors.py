"""Fitted scikit-learn regressors as tensors.

Decision trees become the tensors of ``tree_tensors``. Every other regressor becomes its pickle, in
bytes, with a keyed hash of it. The key exists in this process alone, so that no pickle is opened
that another process has made: those are code.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import NotApplicable
from .model_text import Tree

_KEY = secrets.token_bytes(32)
HASH = 32  # bytes of a keyed hash


def is_tree(estimator: Any) -> bool:
    """Return whether a scikit-learn estimator is one decision tree."""
    from sklearn.tree import BaseDecisionTree

    return isinstance(estimator, BaseDecisionTree)


def tree_of(fitted: Any) -> Tree:
    """Return a fitted ``DecisionTreeRegressor`` of one output as a Tree."""
    tree = fitted.tree_
    nodes, leaf = np.arange(tree.node_count), tree.children_left < 0
    rows = tree.weighted_n_node_samples
    within = tree.impurity * rows
    left = np.where(leaf, nodes, tree.children_left)
    right = np.where(leaf, nodes, tree.children_right)
    return Tree(
        feature=np.where(leaf, -1, tree.feature).astype(np.int32),
        threshold=np.where(leaf, 0.0, tree.threshold),
        missing_left=np.asarray(tree.missing_go_to_left, dtype=bool),
        left=left.astype(np.int32),
        right=right.astype(np.int32),
        value=np.where(leaf, tree.value[:, 0, 0], 0.0),
        gain=np.where(leaf, 0.0, within - within[left] - within[right]),
        category=np.full(len(nodes), -1, dtype=np.int32),
        categories=np.zeros((0, 1), dtype=np.int64),
        constant=np.where(leaf, tree.value[:, 0, 0], 0.0),
        columns=np.zeros((len(nodes), 0), dtype=np.int32),
        coefficients=np.zeros((len(nodes), 0)),
    )


def pickled(fitted: Sequence[Any]) -> dict[str, Tensor]:
    """Return fitted regressors as ``pickles`` (uint8) [regressors, bytes] and their ``sizes``.

    A row is the keyed hash of the pickle, the pickle, and zeros.
    """
    texts = [pickle.dumps(one, protocol=5) for one in fitted]
    sizes = torch.tensor([len(text) for text in texts], dtype=torch.int64)
    width = HASH + max((len(text) for text in texts), default=0)
    table = torch.zeros(len(texts), width, dtype=torch.uint8)
    for row, text in zip(table, texts, strict=True):
        signed = bytearray(_hash(text) + text)
        row[: len(signed)] = torch.frombuffer(signed, dtype=torch.uint8)
    return {"pickles": table, "sizes": sizes}


def unpickled(tensors: Mapping[str, Tensor]) -> list[Any]:
    """Return the regressors of ``pickled``; None for those that pad a stack.

    Raises:
        NotApplicable: If this process has not made them.
    """
    found: list[Any] = []
    rows = tensors["pickles"].cpu().numpy()
    for row, size in zip(rows, tensors["sizes"].tolist(), strict=True):
        signature, text = row[:HASH].tobytes(), row[HASH : HASH + size].tobytes()
        if not size:
            found.append(None)
        elif not hmac.compare_digest(signature, _hash(text)):
            raise NotApplicable(
                "regressors that this process has fitted",
                "pickles of another process, which may hold any code",
                "fit again, or use learners.Trees, learners.Linear or a DecisionTreeRegressor",
            )
        else:
            found.append(pickle.loads(text))  # noqa: S301  # signed by this process
    return found


def _hash(text: bytes) -> bytes:
    return hmac.digest(_KEY, text, hashlib.sha256)
