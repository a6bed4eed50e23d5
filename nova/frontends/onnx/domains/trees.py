"""Rows of tree ensembles: all trees descend together, a level at a time.

Nodes of all trees are rows of constant tables; a row of the input has one current node per tree.
Each level gathers feature, threshold and both children of the current nodes and moves on; leaves
lead to themselves. The depth of the deepest tree is known at import.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import f32, f64
from nova.errors import OnnxError
from nova.frontends.onnx.domains.classical import classify, labels_of, transformed
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast
from nova.frontends.onnx.table import ML, row
from nova.ops import F

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_MEMBER = len(_MODES)
_LEAF = _MEMBER + 1


class Forest:
    """The nodes of all trees: modes, features, thresholds and children by node number.

    `members` has the values that each node tests for membership, filled up with NaN.
    """

    def __init__(
        self,
        modes: np.ndarray,
        features: np.ndarray,
        thresholds: np.ndarray,
        true: np.ndarray,
        false: np.ndarray,
        missing: np.ndarray,
        roots: np.ndarray,
        members: np.ndarray | None = None,
    ):
        self.modes, self.features, self.thresholds = modes, features, thresholds
        self.true, self.false, self.missing, self.roots = true, false, missing, roots
        self.members = members

    def depth(self) -> int:
        """The number of levels below the roots; OnnxError for a cycle."""
        level, depth = set(self.roots.tolist()), 0
        while True:
            inner = [n for n in level if self.modes[n] != _LEAF]
            if not inner:
                return depth
            level = {int(c) for n in inner for c in (self.true[n], self.false[n])}
            depth += 1
            if depth > len(self.modes):
                raise OnnxError("a tree has a cycle")

    def leaves(self, x: Any) -> Any:
        """(rows, trees): the leaf that each row of `x` reaches in each tree."""
        rows, trees = x.shape[0], len(self.roots)
        node = F.expand(constant(self.roots.reshape(1, -1).astype(np.int64)), (rows, trees))

        def of(table: np.ndarray) -> Any:
            flat = F.take(constant(table), F.reshape(node, (rows * trees,)), axis=0)
            return F.reshape(flat, (rows, trees))

        for _ in range(self.depth()):
            value = F.gather(x, of(self.features), axis=1)
            passed = self._test(of(self.modes), value, of(self.thresholds.astype(x.dtype.numpy)))
            if self.members is not None:
                columns = [of(c.astype(x.dtype.numpy)) for c in self.members.T]
                is_member = F.any(F.eq(F.unsqueeze(value, 2), F.stack(columns, axis=2)), axis=2)
                passed = F.where(F.eq(of(self.modes), _MEMBER), is_member, passed)
            if self.missing.any():
                passed = passed | (F.isnan(value) & of(self.missing))
            node = F.where(passed, of(self.true), of(self.false))
        return node

    def _test(self, mode: Any, value: Any, limit: Any) -> Any:
        tests = (F.le, F.lt, F.ge, F.gt, F.eq, F.ne)
        used = [i for i in range(_MEMBER) if (self.modes == i).any()]
        passed = None
        for i in used:
            outcome = tests[i](value, limit)
            passed = outcome if passed is None else F.where(F.eq(mode, i), outcome, passed)
        return F.full(shape=value.shape, value=True, dtype="bool") if passed is None else passed


def _attribute(node: Node, name: str) -> Any:
    """Weights as doubles if the model has them."""
    precise = node.attrs.get(f"{name}_as_tensor")
    return np.asarray(node.attr(name, None) or []) if precise is None else np.asarray(precise)


def _forest(node: Node) -> tuple[Forest, dict[tuple[int, int], int]]:
    trees, ids = node.attr("nodes_treeids"), node.attr("nodes_nodeids")
    number = {pair: i for i, pair in enumerate(zip(trees, ids, strict=True))}
    modes = np.array(
        [_LEAF if m == "LEAF" else _MODES.index(m) for m in node.attr("nodes_modes")], np.int64
    )
    matches = np.arange(len(modes))

    def children(name: str) -> np.ndarray:
        return np.array(
            [
                matches[i] if modes[i] == _LEAF else number[tree, child]
                for i, (tree, child) in enumerate(zip(trees, node.attr(name), strict=True))
            ],
            np.int64,
        )

    true, false = children("nodes_truenodeids"), children("nodes_falsenodeids")
    inner = modes != _LEAF
    is_child = np.zeros(len(modes), bool)
    is_child[true[inner]] = is_child[false[inner]] = True
    missing = np.asarray(node.attr("nodes_missing_value_tracks_true", None) or [0] * len(modes))
    forest = Forest(
        modes,
        np.asarray(node.attr("nodes_featureids"), np.int64),
        _attribute(node, "nodes_values"),
        true,
        false,
        missing.astype(bool),
        np.flatnonzero(~is_child),
    )
    return forest, number


def _scores(node: Node, x: Any, prefix: str, count: int) -> Any:
    """(rows, classes or targets): the sums of the weights of the leaves."""
    forest, number = _forest(node)
    owner = f"{prefix}_treeids", f"{prefix}_nodeids", f"{prefix}_ids"
    trees, ids, columns = (node.attr(name) for name in owner)
    weights = _attribute(node, f"{prefix}_weights")
    table = np.zeros((len(forest.modes), count), weights.dtype)
    for tree, leaf, column, weight in zip(trees, ids, columns, weights, strict=True):
        table[number[tree, leaf], column] += weight
    leaves = forest.leaves(x)
    rows, size = leaves.shape
    table = table.astype(np.float64 if x.dtype is f64 else np.float32)
    each = F.take(constant(table), F.reshape(leaves, (rows * size,)), axis=0)
    each = F.reshape(each, (rows, size, count))
    return _aggregated(each, node.attr("aggregate_function", "SUM"))


def _aggregated(each: Any, function: str) -> Any:
    if function == "SUM":
        return F.sum(each, axis=1)
    if function == "AVERAGE":
        return F.mean(each, axis=1)
    if function in ("MIN", "MAX"):
        return F.min(each, axis=1) if function == "MIN" else F.max(each, axis=1)
    raise OnnxError(f"aggregate_function is {function!r}")


def _base(node: Node, scores: Any) -> Any:
    base = _attribute(node, "base_values")
    return scores if not base.size else scores + constant(base.astype(scores.dtype.numpy))


def _numbers(node: Node) -> Any:
    x = node.tensor(0)
    return x if x.dtype in (f32, f64) else cast(x, f32)


@row("TreeEnsembleRegressor", domain=ML)
def _regressor(node: Node) -> Any:
    scores = _scores(node, _numbers(node), "target", node.attr("n_targets", 1))
    return cast(transformed(_base(node, scores), node.attr("post_transform", "NONE")), f32)


@row("TreeEnsembleClassifier", domain=ML)
def _classifier(node: Node) -> Any:
    labels = labels_of(node)
    columns = set(node.attr("class_ids"))
    single = labels.size == 2 and len(columns) == 1
    scores = _scores(node, _numbers(node), "class", labels.size)
    if single:
        [column] = columns
        scores = F.narrow(scores, 1, column, 1)
    base = _attribute(node, "base_values")
    if base.size:
        scores = scores + constant(base.astype(scores.dtype.numpy))
    label, shares = classify(node, scores, labels)
    return label, cast(shares, f32)


def _members(node: Node, modes: list[int], total: int) -> np.ndarray | None:
    """(nodes, values): the sets of the membership tests, which NaN separates in the model."""
    testers = [i for i, mode in enumerate(modes) if mode == _MEMBER]
    if not testers:
        return None
    values = np.asarray(node.attr("membership_values"), np.float64).reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != len(testers):
        raise OnnxError(f"{len(ends)} sets of membership_values for {len(testers)} tests")
    sets = np.split(values, ends + 1)[: len(ends)]
    table = np.full((total, max(len(s) for s in sets)), np.nan)
    for tester, members in zip(testers, sets, strict=True):
        table[tester, : len(members)] = members
    return table


@row("TreeEnsemble", domain=ML)
def _ensemble(node: Node) -> Any:
    """Version 5 of ai.onnx.ml: interior nodes and leaves in separate tables."""
    x = node.tensor(0)
    modes = [int(m) for m in np.asarray(node.attr("nodes_modes")).reshape(-1)]
    if any(m >= _LEAF for m in modes):
        raise OnnxError(f"nodes_modes are 0 to {_MEMBER}, not {max(modes)}")
    leaves = np.asarray(node.attr("leaf_weights")).reshape(-1)
    inner, total = len(modes), len(modes) + len(leaves)

    def children(name: str) -> np.ndarray:
        ids, flags = node.attr(f"nodes_{name}nodeids"), node.attr(f"nodes_{name}leafs")
        moved = [i + inner if leaf else i for i, leaf in zip(ids, flags, strict=True)]
        return np.array([*moved, *range(inner, total)], np.int64)

    def padded(values: Any, fill: Any) -> np.ndarray:
        return np.concatenate([np.asarray(values).reshape(-1), np.full(len(leaves), fill)])

    tracks = node.attr("nodes_missing_value_tracks_true", None) or [0] * inner
    forest = Forest(
        padded(modes, _LEAF).astype(np.int64),
        padded(node.attr("nodes_featureids"), 0).astype(np.int64),
        padded(node.attr("nodes_splits"), 0),
        children("true"),
        children("false"),
        padded(tracks, 0).astype(bool),
        np.asarray(node.attr("tree_roots"), np.int64),
        _members(node, modes, total),
    )
    targets = node.attr("n_targets", 1)
    table = np.zeros((total, targets), x.dtype.numpy)
    table[np.arange(inner, total), node.attr("leaf_targetids")] = leaves
    reached = forest.leaves(x)
    rows, size = reached.shape
    each = F.take(constant(table), F.reshape(reached, (rows * size,)), axis=0)
    each = F.reshape(each, (rows, size, targets))
    function = ("AVERAGE", "SUM", "MIN", "MAX")[node.attr("aggregate_function", 1)]
    transform = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    return transformed(_aggregated(each, function), transform[node.attr("post_transform", 0)])
