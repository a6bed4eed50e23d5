"""The row of TfIdfVectorizer: counts of the n-grams of a vocabulary in rows of integers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from nova.core.dtypes import f32, i64
from nova.errors import OnnxError
from nova.frontends.onnx.element_types import constant
from nova.frontends.onnx.node import Node
from nova.frontends.onnx.rows.common import cast
from nova.frontends.onnx.table import row
from nova.ops import F


def _vocabulary(node: Node) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each length: (grams, length) the n-grams, and the column that each is counted in."""
    pool = np.asarray(node.attr("pool_int64s"), np.int64)
    columns = np.asarray(node.attr("ngram_indexes"), np.int64)
    starts = [*node.attr("ngram_counts"), len(pool)]
    shortest, longest = node.attr("min_gram_length"), node.attr("max_gram_length")
    first = 0
    for length, (start, stop) in enumerate(pairwise(starts), 1):
        count = (stop - start) // length
        if stop < start or stop > len(pool) or first + count > len(columns):
            raise OnnxError("TfIdfVectorizer: ngram_counts and pool_int64s contradict each other")
        if count and shortest <= length <= longest:
            grams = pool[start : start + count * length].reshape(count, length)
            yield grams, columns[first : first + count]
        first += count


def _counts(x: Any, grams: np.ndarray, distance: int) -> Any:
    """(rows, grams): the counts of each gram in x; `distance` is the step between its items."""
    length = grams.shape[1]
    places = x.shape[1] - (length - 1) * distance
    if places < 1:
        return None
    hits: Any = None
    for item in range(length):
        window = F.unsqueeze(F.narrow(x, 1, item * distance, places), 2)
        hit = F.eq(window, constant(grams[:, item].copy()))
        hits = hit if hits is None else F.logical_and(hits, hit)
    return F.sum(cast(hits, f32), axis=1)


@row("TfIdfVectorizer", since=9)
def _tfidf(node: Node) -> Any:
    x = node.tensor(0)
    if x.ndim > 2:
        raise OnnxError(f"TfIdfVectorizer of {x.shape}")
    if not x.dtype.is_integer or "pool_int64s" not in node.attrs:
        raise node.refused("a vocabulary of strings")
    rows = cast(F.reshape(x, (1, x.size)) if x.ndim < 2 else x, i64)
    width = int(max(node.attr("ngram_indexes"))) + 1
    total: Any = F.full(shape=(rows.shape[0], width), value=0.0, dtype=f32)
    for grams, columns in _vocabulary(node):
        # Items of a single one have no distance.
        distances = range(1, 2 if grams.shape[1] == 1 else node.attr("max_skip_count") + 2)
        for distance in distances:
            counts = _counts(rows, grams, distance)
            if counts is not None:
                total = F.index_add(total, constant(columns), counts, axis=1)
    return _weighted(node, total if x.ndim == 2 else F.reshape(total, (width,)))


def _weighted(node: Node, counts: Any) -> Any:
    mode, weights = node.attr("mode"), node.attr("weights", None)
    if mode not in ("TF", "IDF", "TFIDF"):
        raise OnnxError(f"TfIdfVectorizer: mode {mode!r}")
    if mode == "TF":
        return counts
    shares = cast(F.gt(counts, 0.0), f32) if mode == "IDF" else counts
    if not weights:
        return shares
    columns = node.attr("ngram_indexes")
    if len(weights) != len(columns):
        raise OnnxError(f"TfIdfVectorizer: {len(weights)} weights for {len(columns)} n-grams")
    by_column = np.zeros(counts.shape[-1], np.float32)
    by_column[columns] = weights
    return shares * constant(by_column)
