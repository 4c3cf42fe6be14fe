"""Trees read from the text of a LightGBM model.

``model_to_string`` takes a fourth of the time of ``dump_model``, and holds thresholds and values
with 17 digits, which are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from ..errors import NotApplicable
from .ranks import Ranks
from .tree import Tree, constant_tree

VERSION = "version=v4"
CATEGORICAL, DEFAULT_LEFT, NAN_IS_MISSING = 1, 2, 8  # bits of decision_type


def read_trees(text: str, ranks: Mapping[int, Ranks] = MappingProxyType({})) -> list[Tree]:
    """Return the trees of a model, with thresholds in the units of the columns.

    Args:
        text: What ``Booster.model_to_string`` returns.
        ranks: ``{column: its ranks}`` of the columns of which LightGBM was given ranks.

    Raises:
        NotApplicable: If LightGBM writes another format.
    """
    if VERSION not in text[:200]:
        raise NotApplicable(
            "a model of LightGBM 4", text[:40].replace("\n", " "), 'pip install "lightgbm<5"'
        )
    parts = text.split("\nTree=")[1:]
    return [_read(part.split("\n\n", 1)[0], ranks) for part in parts]


def _read(part: str, ranks: Mapping[int, Ranks]) -> Tree:
    """Return the tree of one part of the text, of lines ``name=numbers``."""
    entries = dict(line.split("=", 1) for line in part.split("\n")[1:] if "=" in line)
    leaves = int(entries["num_leaves"])
    if leaves == 1:
        return constant_tree(float(entries["leaf_value"].split()[0]))
    splits, nodes = leaves - 1, 2 * leaves - 1  # the splits come first, then the leaves
    decision = _whole(entries["decision_type"])
    threshold = _real(entries["threshold"])
    by_category = (decision & CATEGORICAL) > 0
    takes_nan = (decision & NAN_IS_MISSING) > 0
    feature = _whole(entries["split_feature"])
    # missing values that LightGBM's sample of rows did not have are 0 to it, below all ranks
    lowest = np.zeros(splits, dtype=bool)
    for column in set(feature[~by_category].tolist()) & set(ranks):
        here = (feature == column) & ~by_category
        threshold[here] = ranks[column].thresholds(threshold[here])
        lowest[here] = ranks[column].missing
    # a column without missing values when it was binned reads NaN as 0
    read_as_zero = lowest | (threshold >= 0.0)
    missing_left = np.where(takes_nan, (decision & DEFAULT_LEFT) > 0, read_as_zero)
    leaf = np.arange(splits, nodes)
    value = _real(entries["leaf_value"])
    constant, columns, coefficients = _linear(entries, splits, value)
    return Tree(
        feature=_padded(feature, nodes, -1).astype(np.int32),
        threshold=_padded(np.where(by_category, 0.0, threshold), nodes, 0.0),
        missing_left=_padded(missing_left & ~by_category, nodes, False),
        left=np.concatenate([_children(entries["left_child"], splits), leaf]).astype(np.int32),
        right=np.concatenate([_children(entries["right_child"], splits), leaf]).astype(np.int32),
        value=np.concatenate([np.zeros(splits), value]),
        gain=_padded(_real(entries["split_gain"]), nodes, 0.0),
        category=_padded(np.where(by_category, threshold, -1), nodes, -1).astype(np.int32),
        categories=_categories(entries),
        constant=constant,
        columns=columns,
        coefficients=coefficients,
    )


def _real(numbers: str) -> np.ndarray:
    return np.fromstring(numbers, dtype=np.float64, sep=" ")


def _whole(numbers: str) -> np.ndarray:
    return np.fromstring(numbers, dtype=np.int64, sep=" ")


def _padded(values: np.ndarray, nodes: int, fill: float) -> np.ndarray:
    """Return the values of the splits, and ``fill`` for the leaves."""
    padded = np.full(nodes, fill, dtype=values.dtype)
    padded[: len(values)] = values
    return padded


def _children(numbers: str, splits: int) -> np.ndarray:
    """Return the nodes that the children are; the text numbers leaves -1, -2, ..."""
    children = _whole(numbers)
    return np.where(children >= 0, children, splits + ~children)


def _categories(entries: dict[str, str]) -> np.ndarray:
    """Return the words [splits, words] of the splits by categories."""
    if "cat_threshold" not in entries:
        return np.zeros((0, 1), dtype=np.int64)
    ends, words = _whole(entries["cat_boundaries"]), _whole(entries["cat_threshold"])
    table = np.zeros((len(ends) - 1, int(np.diff(ends).max())), dtype=np.int64)
    for row, (start, end) in enumerate(pairwise(ends)):
        table[row, : end - start] = words[start:end]
    return table


def _linear(
    entries: dict[str, str], splits: int, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return constant, columns and coefficients of the leaves, whose outputs are ``value``."""
    constant = np.concatenate([np.zeros(splits), value])
    if entries.get("is_linear") != "1":
        nodes = len(constant)
        return constant, np.zeros((nodes, 0), dtype=np.int32), np.zeros((nodes, 0))
    constant[splits:] = _real(entries["leaf_const"])
    sizes = _whole(entries["num_features"])
    shape = (len(constant), int(sizes.max()))
    columns, coefficients = np.full(shape, -1, dtype=np.int32), np.zeros(shape)
    filled = np.zeros(shape, dtype=bool)
    filled[splits:] = np.arange(shape[1]) < sizes[:, None]
    columns[filled] = _whole(entries["leaf_features"])
    coefficients[filled] = _real(entries["leaf_coeff"])
    return constant, columns, coefficients
