"""One regression tree as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree: node 0 is the root, children follow their parents, and feature = -1 marks a leaf.

    Attributes:
        feature: [nodes], the column of a split; -1 for a leaf.
        threshold: [nodes], x <= threshold goes left.
        missing_left: [nodes], whether NaN goes left.
        left: [nodes], the left child; a leaf is its own child.
        right: [nodes], the right child.
        value: [nodes], the output of a leaf; 0 for a split.
        gain: [nodes], how much a split reduces the squared error; 0 for a leaf.
        category: [nodes], the row of ``categories`` of a split by categories; -1 for others.
        categories: [splits, words], bit c % 32 of word c // 32 is 1 if code c goes left.
        constant: [nodes], the intercept of a linear leaf.
        columns: [nodes, p], the columns of a linear leaf; -1 where there are fewer than p.
        coefficients: [nodes, p], their coefficients.
    """

    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    gain: np.ndarray
    category: np.ndarray
    categories: np.ndarray
    constant: np.ndarray
    columns: np.ndarray
    coefficients: np.ndarray

    def times_power_of_two(self, power: int, power_of_gain: int) -> Tree:
        """Return the tree with outputs and gains multiplied by powers of two."""
        with np.errstate(over="ignore"):  # a gain is a square, and may be infinite
            gain = np.ldexp(self.gain, power_of_gain)
        return replace(
            self,
            value=np.ldexp(self.value, power),
            constant=np.ldexp(self.constant, power),
            coefficients=np.ldexp(self.coefficients, power),
            gain=gain,
        )


def constant_tree(value: float) -> Tree:
    """Return a tree with one leaf."""
    none, zero = np.full(1, -1, dtype=np.int32), np.zeros(1)
    return Tree(
        feature=none,
        threshold=zero,
        missing_left=np.zeros(1, dtype=bool),
        left=np.zeros(1, dtype=np.int32),
        right=np.zeros(1, dtype=np.int32),
        value=np.full(1, value),
        gain=zero,
        category=none,
        categories=np.zeros((0, 1), dtype=np.int64),
        constant=np.full(1, value),
        columns=np.zeros((1, 0), dtype=np.int32),
        coefficients=np.zeros((1, 0)),
    )
