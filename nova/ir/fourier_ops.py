"""Fourier transforms as one op below the nova dialect: the op that carries one, and its reader.

The row `dft` lowers to `nova.fourier` on tensors with a last axis of real and imaginary parts, with
a table of twiddle factors as a second operand. `wrap-attention` makes it a `linalg.generic` over
the loops

    batch ..., j (elements), k (terms), c (parts), t (numbers of the table)

with a `nova.fourier_point` in its body, which only `nova/codegen/cpu/fourier/` can lower.

The transform is Stockham's: pass after pass of a mixed-radix Cooley-Tukey algorithm, each of which
reads one buffer in order and writes another, with the terms in order at the end. With r the radix
of a pass, s the product of the radices before it and m = n / (r s), a pass is

    y[p, k, q] = w^(p k) * sum over j of x[j, p, q] * exp(sign 2 pi i j k / r)

for p < m and q < s, where w = exp(sign 2 pi i / (r m)).
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


@record
class FourierKind:
    """The meaning of a point: the sign of the exponent, and a factor of the result."""

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


def twiddles(n: int, sign: int) -> np.ndarray:
    """The numbers of all passes: of a factor a + ib, a a and -b b.

    Those of the first pass are in the order of vectors over p: for each k, all a, then all b.
    """
    parts = [np.zeros(1)]
    for step in passes(n):
        if step.rest == 1:
            continue
        terms = step.radix * step.rest
        turns = np.outer(np.arange(step.rest), np.arange(1, step.radix)) % terms
        w = np.exp(sign * 2j * np.pi * (turns / terms))
        numbers = np.stack([w.real, w.real, -w.imag, w.imag], axis=-1)
        if step.done == 1:  # [k][a or b][p][2]
            numbers = numbers.reshape(step.rest, step.radix - 1, 2, 2).transpose(1, 2, 0, 3)
        parts.append(numbers.ravel())
    return np.concatenate([*parts[1:], parts[0]])


def emit_fourier(x: Any, table: Any, kind: FourierKind) -> Any:
    """The transform along the axis before the last one, at the insertion point."""
    return ir.Operation.create(
        OP, results=[x.type], operands=[x, table], attributes=_attributes(kind)
    ).result


def wrap_fourier(op: Any) -> Any:
    """The `linalg.generic` of a `nova.fourier`, at the insertion point."""
    x, table = op.operands
    *batch, n, parts = x.type.shape
    count = len(batch)
    dims = [ir.AffineDimExpr.get(i) for i in range(count + 4)]
    j, k, c, t = dims[count:]

    def access(*results: Any) -> Any:
        return ir.AffineMap.get(count + 4, 0, list(results))

    generic = generic_op(
        [x.type],
        [x, table],
        [tensor.empty(list(x.type.shape), x.type.element_type)],
        [access(*dims[:count], j, c), access(t), access(*dims[:count], k, c)],
        ["parallel"] * count + ["reduction"] * 4,
    )
    WORK.set(generic, prod(batch) * n * parts * (4 * n.bit_length() + 4))
    element = x.type.element_type
    block = generic.regions[0].blocks.append(element, element, element)
    with ir.InsertionPoint(block):
        point = ir.Operation.create(
            POINT,
            results=[element],
            operands=list(block.arguments)[:2],
            attributes={name: op.attributes[name] for name in ("sign", "scale")},
        )
        yield_op([point.result])
    return generic.results[0]


def find_fourier(op: Any) -> FourierKind | None:
    """The transform that the body of a linalg.generic stands for, or None."""
    for inner in op.regions[0].blocks[0].operations:
        if inner.operation.name == POINT:
            attributes = inner.operation.attributes
            return FourierKind(int(attributes["sign"].value), float(attributes["scale"].value))
    return None


def verify_fourier(op: Any) -> bool:
    """The verifier of `nova.fourier`."""
    if all(name in op.attributes for name in ("sign", "scale")):
        return True
    op.location.emit_error(f"'{OP}' op needs the attributes `sign` and `scale`")
    return False


def _attributes(kind: FourierKind) -> dict[str, Any]:
    return {
        "sign": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), kind.sign),
        "scale": ir.FloatAttr.get(ir.F64Type.get(), kind.scale),
    }
