"""`expand-factorizations`: LAPACK calls of jax and StableHLO's solvers become Nova's loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from nova import linalg
from nova.core.dtypes import TensorType
from nova.core.records import record
from nova.graph.control.functions import fori_loop
from nova.ir.bindings import ir
from nova.ir.types import nova_type
from nova.ir.walk import every_op
from nova.linalg.batches import flat
from nova.linalg.lu import factorize
from nova.linalg.qr import householder_factors, householder_product
from nova.ops import F
from nova.passes.base import Pass
from nova.passes.importing.inline_graph import inline_graph, lower_inlined

_CONFIG = "mhlo.backend_config"


@record
class ExpandFactorizations(Pass):
    """Replace factorizations of real matrices by the algorithms of `nova.linalg`.

    These are `stablehlo.cholesky`, `stablehlo.triangular_solve`, and jax's custom calls of LAPACK:
    potrf, trsm, getrf, geqrf, orgqr, syevd and gesdd. The signs of eigenvectors and singular
    vectors are Nova's: LAPACK's are not defined either.
    """

    name: ClassVar[str] = "expand-factorizations"

    def run(self, module: ir.Module) -> None:
        expanded = False
        for op in every_op(module):
            function = _function(op)
            if function is None:
                continue
            with ir.InsertionPoint(op), op.location:
                for old, value in zip(op.results, _inlined(op, function), strict=True):
                    old.replace_all_uses_with(value)
            op.erase()
            expanded = True
        if expanded:
            lower_inlined(module)


def is_factorization(op: Any) -> bool:
    """Whether an op is one that this pass replaces."""
    return _function(op) is not None


def _function(op: Any) -> Callable[..., Sequence[Any]] | None:
    if not op.name.startswith("stablehlo.") or any(
        str(v.type).endswith("complex<f32>>") or str(v.type).endswith("complex<f64>>")
        for v in op.operands
    ):
        return None
    if op.name == "stablehlo.cholesky":
        is_lower = "lower" in op.attributes and op.attributes["lower"].value
        return lambda a: [_cholesky(a, is_lower)]
    if op.name == "stablehlo.triangular_solve":
        return _solver(op)
    if op.name != "stablehlo.custom_call" or _CONFIG not in op.attributes:
        return None
    target = op.attributes["call_target_name"].value
    routine = target.removeprefix("lapack_").removesuffix("_ffi")
    if not target.startswith("lapack_") or routine[:1] not in ("s", "d"):
        return None
    config = op.attributes[_CONFIG]
    options = {name: chr(config[name].value) for name in _OPTIONS if name in config}
    if routine[1:] == "gesdd" and options["mode"] not in "ASN":
        return None
    if routine[1:] == "gesdd" and options["mode"] == "N":
        u, v = (nova_type(op.results[i].type) for i in (2, 3))
        return lambda a: _singular_values(a, u, v)
    build = _ROUTINES.get(routine[1:])
    return None if build is None else lambda *tensors: build(options, *tensors)


_OPTIONS = ("uplo", "side", "trans_x", "diag", "mode")


def _inlined(op: Any, function: Callable[..., Sequence[Any]]) -> list[Any]:
    types = [nova_type(r.type) for r in op.results]

    def typed(*tensors: Any) -> list[Any]:
        return [
            F.cast(F.reshape(value, type_.shape), dtype=type_.dtype)
            for value, type_ in zip(function(*tensors), types, strict=True)
        ]

    return inline_graph(typed, list(op.operands))


def _transposed(x: Any) -> Any:
    return F.swapaxes(x, -1, -2)


def _status(x: Any) -> Any:
    """LAPACK's info for each matrix: 0 if the factors are numbers."""
    return F.cast(F.any(F.isnan(x), axis=(-2, -1)), dtype="i32")


def _success(x: Any) -> Any:
    return F.zeros(x.shape[:-2], dtype="i32")


def _cholesky(a: Any, is_lower: bool) -> Any:
    return linalg.cholesky(a) if is_lower else _transposed(linalg.cholesky(_transposed(a)))


def _potrf(options: dict[str, str], a: Any) -> list[Any]:
    is_lower = options["uplo"] == "L"
    factor = _cholesky(a, is_lower)
    # LAPACK does not write the other triangle.
    other = F.triu(a, k=1) if is_lower else F.tril(a, k=-1)
    return [factor + other, _status(factor)]


def _trsm(options: dict[str, str], a: Any, b: Any) -> list[Any]:
    is_upper = options["uplo"] == "U"
    if options["trans_x"] != "N":
        a, is_upper = _transposed(a), not is_upper
    is_left, is_unit = options["side"] == "L", options["diag"] == "U"
    return [linalg.solve_triangular(a, b, upper=is_upper, left=is_left, unitriangular=is_unit)]


def _solver(op: Any) -> Callable[..., Sequence[Any]]:
    flags = {
        name: bool(op.attributes[name].value) for name in ("left_side", "lower", "unit_diagonal")
    }
    is_plain = "NO_TRANSPOSE" in str(op.attributes["transpose_a"])
    options = {
        "uplo": "L" if flags["lower"] else "U",
        "side": "L" if flags["left_side"] else "R",
        "diag": "U" if flags["unit_diagonal"] else "N",
        "trans_x": "N" if is_plain else "T",
    }
    return lambda a, b: _trsm(options, a, b)


def _getrf(options: dict[str, str], a: Any) -> list[Any]:
    factors, order = factorize(flat(a))
    return [factors, _swaps(order, min(a.shape[-2:])), _success(a)]


def _swaps(order: Any, count: int) -> Any:
    """LAPACK's pivots, from 1: the row that step k exchanges with row k."""
    if not order.size or not count:
        return F.zeros((order.shape[0], count), dtype="i32")
    batch, n = order.shape
    rows = F.expand(F.arange(n), (batch, n))

    def step(k: Any, state: Any) -> Any:
        current, pivots = state
        is_k = F.eq(rows, k)
        chosen = F.sum(F.where(is_k, order, 0), axis=1, keepdims=True)
        at = F.unsqueeze(F.argmax(F.eq(current, chosen), axis=1), 1)
        first = F.sum(F.where(is_k, current, 0), axis=1, keepdims=True)
        current = F.where(is_k, chosen, F.where(F.eq(rows, at), first, current))
        return current, F.where(is_k, at + 1, pivots)

    return fori_loop(0, count, step, (rows, F.zeros_like(rows)))[1][:, :count]


def _geqrf(options: dict[str, str], a: Any) -> list[Any]:
    return list(householder_factors(flat(a)))


def _orgqr(options: dict[str, str], vectors: Any, taus: Any) -> list[Any]:
    return [householder_product(flat(vectors), F.reshape(taus, (-1, taus.shape[-1])))]


def _syevd(options: dict[str, str], a: Any) -> list[Any]:
    values, vectors = linalg.eigh(a, options["uplo"])
    return [vectors, values, _success(a)]


def _singular_values(a: Any, u: TensorType, v: TensorType) -> list[Any]:
    """gesdd of mode N: the factors have types and are not computed."""
    _, s, _ = linalg.svd(a, full_matrices=False)
    factors = (F.zeros(t.shape, dtype=t.dtype) for t in (u, v))
    return [a, s, *factors, _success(a)]


def _gesdd(options: dict[str, str], a: Any) -> list[Any]:
    u, s, v = linalg.svd(a, full_matrices=options["mode"] == "A")
    return [a, s, u, v, _success(a)]


_ROUTINES: dict[str, Callable[..., list[Any]]] = {
    "potrf": _potrf,
    "trsm": _trsm,
    "getrf": _getrf,
    "geqrf": _geqrf,
    "orgqr": _orgqr,
    "syevd": _syevd,
    "gesdd": _gesdd,
}
