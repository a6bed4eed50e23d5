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
from nova.linalg.batches import adjoint, flat, transposed
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
    vectors are Nova's: LAPACK's are not defined either. Those of complex matrices are left to
    `split-complex`, which calls `factorization_of`.
    """

    name: ClassVar[str] = "expand-factorizations"
    only_with: ClassVar[tuple[str, ...]] = (
        "stablehlo.cholesky",
        "stablehlo.triangular_solve",
        "lapack_",
    )

    def run(self, module: ir.Module) -> None:
        expanded = False
        for op in every_op(module):
            function = None if _is_complex(op) else factorization_of(op)
            if function is None:
                continue
            with ir.InsertionPoint(op), op.location:
                values = inline_graph(function, list(op.operands))
                for old, value in zip(op.results, values, strict=True):
                    old.replace_all_uses_with(value)
            op.erase()
            expanded = True
        if expanded:
            lower_inlined(module)


def is_factorization(op: Any) -> bool:
    """Whether an op is one of those that have a function of `nova.linalg`."""
    return _function(op) is not None


def factorization_of(op: Any) -> Callable[..., list[Any]] | None:
    """The function of an op's operands as tensors, with results of the op's types."""
    function = _function(op)
    if function is None:
        return None
    types = [nova_type(r.type) for r in op.results]

    def typed(*tensors: Any) -> list[Any]:
        return [
            F.cast(F.reshape(value, type_.shape), dtype=type_.dtype)
            for value, type_ in zip(function(*tensors), types, strict=True)
        ]

    return typed


def _is_complex(op: Any) -> bool:
    return any("complex<" in str(v.type) for v in op.operands)


def _function(op: Any) -> Callable[..., Sequence[Any]] | None:
    if op.name == "stablehlo.cholesky":
        is_lower = "lower" in op.attributes and op.attributes["lower"].value
        return lambda a: [_cholesky(a, is_lower)]
    if op.name == "stablehlo.triangular_solve":
        return _solver(op)
    if op.name != "stablehlo.custom_call" or _CONFIG not in op.attributes:
        return None
    target = op.attributes["call_target_name"].value
    routine = target.removeprefix("lapack_").removesuffix("_ffi")
    if not target.startswith("lapack_") or routine[:1] not in ("s", "d", "c", "z"):
        return None
    routine = _UNITARY.get(routine[1:], routine[1:])
    config = op.attributes[_CONFIG]
    options = {name: chr(config[name].value) for name in _OPTIONS if name in config}
    if routine == "gesdd" and options["mode"] not in "ASN":
        return None
    if routine == "gesdd" and options["mode"] == "N":
        u, v = (nova_type(op.results[i].type) for i in (2, 3))
        return lambda a: _singular_values(a, u, v)
    build = _ROUTINES.get(routine)
    return None if build is None else lambda *tensors: build(options, *tensors)


_UNITARY = {"ungqr": "orgqr", "heevd": "syevd"}
"""Names that LAPACK gives routines of complex matrices."""
_OPTIONS = ("uplo", "side", "trans_x", "diag", "mode")


def _status(x: Any) -> Any:
    """LAPACK's info for each matrix: 0 if the factors are numbers."""
    return F.cast(F.any(F.isnan(F.abs(x)), axis=(-2, -1)), dtype="i32")


def _success(x: Any) -> Any:
    return F.zeros(x.shape[:-2], dtype="i32")


def _cholesky(a: Any, is_lower: bool) -> Any:
    return linalg.cholesky(a) if is_lower else adjoint(linalg.cholesky(adjoint(a)))


def _potrf(options: dict[str, str], a: Any) -> list[Any]:
    is_lower = options["uplo"] == "L"
    factor = _cholesky(a, is_lower)
    # LAPACK does not write the other triangle.
    other = F.triu(a, k=1) if is_lower else F.tril(a, k=-1)
    return [factor + other, _status(factor)]


def _trsm(options: dict[str, str], a: Any, b: Any) -> list[Any]:
    is_upper = options["uplo"] == "U"
    if options["trans_x"] != "N":
        a = adjoint(a) if options["trans_x"] == "C" else transposed(a)
        is_upper = not is_upper
    is_left, is_unit = options["side"] == "L", options["diag"] == "U"
    return [linalg.solve_triangular(a, b, upper=is_upper, left=is_left, unitriangular=is_unit)]


def _solver(op: Any) -> Callable[..., Sequence[Any]]:
    flags = {
        name: bool(op.attributes[name].value) for name in ("left_side", "lower", "unit_diagonal")
    }
    transposition = str(op.attributes["transpose_a"]).removesuffix(">").split()[-1]
    options = {
        "uplo": "L" if flags["lower"] else "U",
        "side": "L" if flags["left_side"] else "R",
        "diag": "U" if flags["unit_diagonal"] else "N",
        "trans_x": {"NO_TRANSPOSE": "N", "ADJOINT": "C"}.get(transposition, "T"),
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
