"""Fitted scikit-learn regressors.

Decision trees become the tensors of ``tree_tensors``. Every other regressor stays a Python object,
and tensors hold its number.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import NotApplicable
from .tree import Tree

PADDING = 0  # the number that fills the tensors of shorter members


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


class Regressors:
    """Fitted regressors by their numbers.

    Numbers are random, so that those of another record are not found here.
    """

    def __init__(self) -> None:
        self._by_number: dict[int, Any] = {}

    def add(self, fitted: Any) -> int:
        """Keep a regressor and return its number."""
        number = 1 + secrets.randbits(62)
        self._by_number[number] = fitted
        return number

    def at(self, numbers: Iterable[int]) -> list[Any]:
        """Return the regressors of these numbers; None for padding.

        Raises:
            NotApplicable: If one of them is not kept here.
        """
        found = []
        for number in numbers:
            if number != PADDING and number not in self._by_number:
                raise NotApplicable(
                    "the learners.Estimator whose regressors these are, in the process of the fit",
                    "another one",
                    "use the model of the posterior, or fit again",
                )
            found.append(self._by_number.get(number))
        return found
