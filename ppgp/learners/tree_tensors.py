"""Trees as padded tensors, and the evaluation of their sum.

The tensors of T trees are ``outputs`` [], the number K of outputs, and, each [T, nodes]:

- ``feature`` (int32): the column of a split; -1 for a leaf,
- ``threshold``: values of at most this go to the child ``left``, larger ones to ``right`` (int32);
  both are the node itself in a leaf,
- ``missing_left`` (bool): whether a missing value goes left,
- ``value``: the output of a leaf, 0 for a split,
- ``gain``: how much a split reduces the squared error, 0 for a leaf.

Trees are in the order of their stages, and within a stage in that of their outputs: tree m K + k
is that of stage m and output k. Node 0 is the root, and children come after their parents.

Splits by categories add ``category`` (int32) [T, nodes], the number of the split among those by
categories, -1 for others, and ``categories`` (int64) [T, splits, words]: bit c % 32 of word c // 32
is 1 if code c goes left; a missing or unknown code goes right. Linear leaves add ``constant``
[T, nodes], ``columns`` (int32, -1 for none) and ``coefficients`` [T, nodes, p]; ``value`` is then
the output where one of these columns is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..errors import StorageError

CELLS = 16_384  # (tree, row) pairs that are evaluated at once: their arrays fit in the L2 cache


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees laid out for evaluation; a node has one number among the nodes of all trees.

    Attributes:
        outputs: The number K of outputs.
        nodes: The number of nodes of each tree, padding included.
        depth: [T], the depth of each tree.
        feature: [T * nodes], 0 for a leaf.
        threshold: [T * nodes], infinity for a leaf.
        child: [2 * T * nodes], of node i the right child at 2 i and the left one at 2 i + 1.
        missing_left: [T * nodes].
        value: [T * nodes].
        category: [T * nodes], the row of ``categories``, -1 for none; None without such splits.
        categories: [rows, words].
        constant: [T * nodes], or None without linear leaves.
        columns: [p, T * nodes], 0 for none.
        coefficients: [p, T * nodes], 0 for none.
    """

    outputs: int
    nodes: int
    depth: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    child: np.ndarray
    missing_left: np.ndarray
    value: np.ndarray
    category: np.ndarray | None
    categories: np.ndarray
    constant: np.ndarray | None
    columns: np.ndarray
    coefficients: np.ndarray

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.depth) // self.outputs

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Forest:
        """Lay out the tensors of one fit.

        Raises:
            StorageError: If a child does not come after its parent.
        """
        arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items()}
        trees, nodes = arrays["feature"].shape
        leaf = arrays["feature"] < 0
        first = nodes * np.arange(trees)[:, None]
        left, right = arrays["left"].astype(np.int64), arrays["right"].astype(np.int64)
        category, categories = None, np.zeros((0, 1), dtype=np.int64)
        if "category" in arrays:
            splits = arrays["categories"].shape[1]
            row = arrays["category"] + splits * np.arange(trees)[:, None]
            category = np.where(arrays["category"] < 0, -1, row).ravel()
            categories = arrays["categories"].reshape(-1, arrays["categories"].shape[2])
        p = arrays["columns"].shape[2] if "columns" in arrays else 0
        size = trees * nodes
        columns, coefficients = np.zeros((p, size), dtype=np.int64), np.zeros((p, size))
        if p:
            columns = np.maximum(arrays["columns"].reshape(size, p), 0).T.astype(np.int64)
            coefficients = arrays["coefficients"].reshape(size, p).T
        return cls(
            outputs=int(arrays["outputs"]),
            nodes=nodes,
            depth=_depths(left, right, leaf),
            feature=np.where(leaf, 0, arrays["feature"]).astype(np.int64).ravel(),
            threshold=np.where(leaf, np.inf, arrays["threshold"]).ravel(),
            child=np.stack([right + first, left + first], -1).ravel(),
            missing_left=arrays["missing_left"].ravel(),
            value=arrays["value"].ravel(),
            category=category,
            categories=categories,
            constant=arrays["constant"].ravel() if "constant" in arrays else None,
            columns=np.ascontiguousarray(columns),
            coefficients=np.ascontiguousarray(coefficients),
        )

    def add_to(self, total: np.ndarray, X: np.ndarray, start: int, stop: int) -> None:
        """Add the stages from ``start`` to before ``stop`` to ``total`` [K, m], one by one.

        The sum of a row does not depend on the other rows.

        Args:
            total: [K, m], which is changed.
            X: [m, d], float64.
            start: The first stage.
            stop: The stage after the last.
        """
        first, last = start * self.outputs, stop * self.outputs
        for begin in range(0, len(X), CELLS):
            block = np.ascontiguousarray(X[begin : begin + CELLS].T)
            rows = _Rows(block, bool(np.isnan(block).any()))
            size = block.shape[1]
            together = max(1, CELLS // size)
            for tree in range(first, last, together):
                end = min(tree + together, last)
                values = self._values(rows, tree, end)
                for number, value in enumerate(values, tree):
                    total[number % self.outputs, begin : begin + size] += value

    def _values(self, rows: _Rows, start: int, stop: int) -> np.ndarray:
        """Return the outputs [stop - start, m] of some trees."""
        node = self._leaves(rows, start, stop)
        if self.constant is None:
            return self.value.take(node)
        value = self.constant.take(node)
        for columns, coefficients in zip(self.columns, self.coefficients, strict=True):
            used = coefficients.take(node)
            value += np.where(used == 0.0, 0.0, used * rows.entries(columns.take(node)))
        if rows.missing:
            value = np.where(np.isnan(value), self.value.take(node), value)
        return value

    def _leaves(self, rows: _Rows, start: int, stop: int) -> np.ndarray:
        """Return the leaf [stop - start, m] of every row in some trees."""
        node = np.repeat(self.nodes * np.arange(start, stop)[:, None], rows.size, axis=1)
        threshold = np.empty(node.shape)
        for _ in range(int(self.depth[start:stop].max(initial=0))):
            x = rows.entries(self.feature.take(node))
            np.take(self.threshold, node, out=threshold, mode="clip")
            left = x <= threshold
            if rows.missing:
                left |= np.isnan(x) & self.missing_left.take(node)
            if self.category is not None:
                self._by_category(left, x, node)
            node *= 2
            node += left  # child[2 i + 1] is the left child of node i, child[2 i] the right one
            node = self.child.take(node)
        return node

    def _by_category(self, left: np.ndarray, x: np.ndarray, node: np.ndarray) -> None:
        """Correct ``left`` where the split is by categories."""
        assert self.category is not None
        rows = self.category.take(node)
        at = np.nonzero(rows >= 0)
        words = self.categories.shape[1]
        known = (x[at] > -1.0) & (x[at] < 32 * words)  # False for NaN
        code = np.where(known, x[at], 0.0).astype(np.int64)
        word = self.categories[rows[at], code // 32]
        left[at] = known & ((word >> (code % 32)) % 2 == 1)


@dataclass(frozen=True, eq=False)
class _Rows:
    """A block of rows, column after column.

    Attributes:
        block: [d, m].
        missing: Whether it holds NaN.
    """

    block: np.ndarray
    missing: bool

    @property
    def size(self) -> int:
        """The number m of rows."""
        return self.block.shape[1]

    def entries(self, columns: np.ndarray) -> np.ndarray:
        """Return the entry of each row in the column that ``columns`` [trees, m] names.

        ``columns`` is overwritten.
        """
        columns *= self.size
        columns += np.arange(self.size)
        return self.block.ravel().take(columns)


def _depths(left: np.ndarray, right: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    """Return the depth of each tree [T], from its children [T, nodes].

    Raises:
        StorageError: If a child of a split does not come after its parent.
    """
    trees, nodes = left.shape
    order = np.arange(nodes)
    forward = (left > order) & (right > order) & (left < nodes) & (right < nodes)
    if not (forward | leaf).all():
        got = "a child before its parent, or outside the tree"
        raise StorageError("children after their parents in a tree", got, "fit again")
    depth, tree = np.zeros((trees, nodes), dtype=np.int64), np.arange(trees)
    for node in range(nodes):
        split = tree[~leaf[:, node]]
        for child in (left, right):
            depth[split, child[split, node]] = depth[split, node] + 1
    return depth.max(1, initial=0)


def tree_sum(tensors: Mapping[str, Tensor], X: Tensor, until: int) -> Tensor:
    """Return the sum [K, m] of the first ``until`` stages."""
    forest = Forest.of(tensors)
    total = np.zeros((forest.outputs, len(X)))
    forest.add_to(total, _array(X), 0, until)
    return _like(total, X)


def partial_sums(
    tensors: Mapping[str, Tensor], X: Tensor, until: int, every: int
) -> Iterator[Tensor]:
    """Yield the sums [K, m] of the first ``every``, ``2 * every``, ... and ``until`` stages."""
    forest, rows = Forest.of(tensors), _array(X)
    total = np.zeros((forest.outputs, len(X)))
    if not until:
        yield _like(total, X)
    for start in range(0, until, every):
        forest.add_to(total, rows, start, min(start + every, until))
        yield _like(total.copy(), X)


def gains(tensors: Mapping[str, Tensor], d: int) -> Tensor:
    """Return the sum of gains of each output and column, [K, d]."""
    outputs, feature = int(tensors["outputs"]), tensors["feature"].long()
    output = (torch.arange(len(feature), device=feature.device) % outputs)[:, None]
    split = feature >= 0
    place = (output * d + feature)[split]
    total = tensors["gain"].new_zeros(outputs * d)
    return total.index_add_(0, place, tensors["gain"][split]).reshape(outputs, d)


def _array(X: Tensor) -> np.ndarray:
    return X.detach().to("cpu", torch.float64).numpy()


def _like(total: np.ndarray, X: Tensor) -> Tensor:
    return torch.from_numpy(total).to(X)
