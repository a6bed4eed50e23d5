"""Fourier transforms as one op below the nova dialect: the op that carries one, and its reader.

The rows `dft`, `rdft` and `irdft` lower to `nova.fourier` on tensors with a last axis of real and
imaginary parts, with a table of twiddle factors as a second operand. `wrap-attention` makes it a
`linalg.generic` over the loops

    batch ..., i (columns, if there are), j (elements), k (terms), c (parts), t (the table)

with a `nova.fourier_point` in its body, which only `nova/codegen/cpu/fourier/` can lower.

The transform is Stockham's: pass after pass of a mixed-radix Cooley-Tukey algorithm, each of which
reads one buffer in order and writes another, with the terms in order at the end. With r the radix
of a pass, s the product of the radices before it and m = n / (r s), a pass is

    y[p, k, q] = w^(p k) * sum over j of x[j, p, q] * exp(sign 2 pi i j k / r)

for p < m and q < s, where w = exp(sign 2 pi i / (r m)).

Even and odd elements of 2 n real numbers are the parts of n complex ones. With X their transform,
E = X[k] + conj(X[n - k]) and D = X[k] - conj(X[n - k]), that of the real numbers has the terms
E + v D at k and conj(E - v D) at n - k, where v = sign i exp(sign pi i k / n), times 1 / 2. The
same formula makes X of the terms: this step is after the passes, or before them.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from nova.core.records import record
from nova.ir.attributes import WORK
from nova.ir.bindings import ir, tensor
from nova.ir.linalg.ops import generic_op, yield_op

NAME = "fourier"
OP, POINT = f"nova.{NAME}", f"nova.{NAME}_point"
_PRIMES = (13, 11, 7, 5, 3)


FORMS = ("rows", "columns", "from_real", "to_real")
"""Transforms of rows, of columns of matrices, and of rows of real numbers into and from terms."""


@record
class FourierSpec:
    """The meaning of a point: `n` complex numbers, the sign of the exponent, a factor."""

    form: str
    n: int
    sign: int
    scale: float


@record
class FourierPass:
    """One pass over a row of `radix * rest * done` elements; its numbers begin at `table`."""

    radix: int
    rest: int
    done: int
    table: int


def passes(n: int) -> list[FourierPass]:
    """The passes of a transform of n elements, whose prime factors are at most 13."""
    result, done, start = [], 1, 0
    for radix in _radices(n):
        rest = n // (radix * done)
        result.append(FourierPass(radix, rest, done, start))
        start += 4 * (radix - 1) * rest if rest > 1 else 0
        done *= radix
    return result


def _radices(n: int) -> list[int]:
    """Eights first, whose results fill whole vectors, then other powers of two, then odd primes."""
    odd = []
    for prime in _PRIMES:
        while n % prime == 0:
            odd.append(prime)
            n //= prime
    bits = n.bit_length() - 1
    fours = {1: 2, 2: 1, 0: 0}[bits % 3] if bits > 1 else 0
    eights = (bits - 2 * fours) // 3 if bits > 1 else 0
    return [8] * eights + [4] * fours + [2] * (bits == 1) + odd


def twiddles(spec: FourierSpec) -> np.ndarray:
    """The numbers of all passes: of a factor a + ib, a a and -b b.

    Those of the first pass over rows are in the order of vectors over p: for each k, all a, then
    all b. Those of real numbers follow in this order, for k from 1 to n // 2.
    """
    n, sign, parts = spec.n, spec.sign, []
    for step in passes(n):
        if step.rest == 1:
            continue
        terms = step.radix * step.rest
        steps = np.outer(np.arange(step.rest), np.arange(1, step.radix)) % terms
        w = np.exp(sign * 2j * np.pi * (steps / terms))
        numbers = _doubled(w)  # [p][k][a or b][2]
        if step.done == 1 and spec.form != "columns":
            numbers = numbers.transpose(1, 2, 0, 3)
        parts.append(numbers.ravel())
    if spec.form in ("from_real", "to_real"):
        steps = np.exp(sign * 1j * np.pi * (np.arange(1, n // 2 + 1) / n))
        parts.append(_doubled(sign * 1j * steps).transpose(1, 0, 2).ravel())
    return np.concatenate([*parts, np.zeros(1)])


def _doubled(w: np.ndarray) -> np.ndarray:
    return np.stack([w.real, w.real, -w.imag, w.imag], axis=-1).reshape(*w.shape, 2, 2)


def table_end(n: int) -> int:
    """Where the numbers of the passes end, and those of real numbers begin."""
    return sum(4 * (step.radix - 1) * step.rest for step in passes(n) if step.rest > 1)


def emit_fourier(x: Any, table: Any, result: Any, spec: FourierSpec) -> Any:
    """A transform of the type `result`, at the insertion point."""
    return ir.Operation.create(
        OP, results=[result], operands=[x, table], attributes=_attributes(spec)
    ).result


def wrap_fourier(op: Any) -> Any:
    """The `linalg.generic` of a `nova.fourier`, at the insertion point."""
    (x, table), result = op.operands, op.results[0].type
    spec = _spec(op.attributes)
    inner = {"rows": 2, "columns": 3, "from_real": 1, "to_real": 2}[spec.form]
    count = len(x.type.shape) - inner
    columns = spec.form == "columns"
    loops = count + columns + 4
    dims = [ir.AffineDimExpr.get(i) for i in range(loops)]
    batch, column, (j, k, c, t) = dims[:count], dims[count : count + columns], dims[-4:]
    parts = {"from_real": ((), (c,)), "to_real": ((c,), ())}.get(spec.form, ((c,), (c,)))
    accesses = ((*batch, j, *column, *parts[0]), (t,), (*batch, k, *column, *parts[1]))
    generic = generic_op(
        [result],
        [x, table],
        [tensor.empty(list(result.shape), result.element_type)],
        [ir.AffineMap.get(loops, 0, list(access)) for access in accesses],
        ["parallel"] * (count + columns) + ["reduction"] * 4,
    )
    WORK.set(generic, prod(result.shape) * (4 * spec.n.bit_length() + 4))
    element = result.element_type
    block = generic.regions[0].blocks.append(element, element, element)
    with ir.InsertionPoint(block):
        point = ir.Operation.create(
            POINT,
            results=[element],
            operands=list(block.arguments)[:2],
            attributes=_attributes(spec),
        )
        yield_op([point.result])
    return generic.results[0]


def find_fourier(op: Any) -> FourierSpec | None:
    """The transform that the body of a linalg.generic stands for, or None."""
    for inner in op.regions[0].blocks[0].operations:
        if inner.operation.name == POINT:
            return _spec(inner.operation.attributes)
    return None


def verify_fourier(op: Any) -> bool:
    """The verifier of `nova.fourier`."""
    missing = [name for name in ("form", "n", "sign", "scale") if name not in op.attributes]
    if not missing and op.attributes["form"].value in FORMS:
        return True
    op.location.emit_error(f"'{OP}' op needs the attributes `form`, `n`, `sign` and `scale`")
    return False


def _spec(attributes: Any) -> FourierSpec:
    return FourierSpec(
        form=str(attributes["form"].value),
        n=int(attributes["n"].value),
        sign=int(attributes["sign"].value),
        scale=float(attributes["scale"].value),
    )


def _attributes(spec: FourierSpec) -> dict[str, Any]:
    number = ir.IntegerType.get_signless(64)
    return {
        "form": ir.StringAttr.get(spec.form),
        "n": ir.IntegerAttr.get(number, spec.n),
        "sign": ir.IntegerAttr.get(number, spec.sign),
        "scale": ir.FloatAttr.get(ir.F64Type.get(), spec.scale),
    }
