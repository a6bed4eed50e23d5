"""Packed layouts of a GEMM: a packed word is an element, or several steps of k of one lane.

Input: a target and a `Contraction`. Output: its `PackedLayout`, which says how k is cut into words
and which instruction multiplies them. `blocking.py` chooses the layout; `packed_gemm.py` packs and
multiplies by it.

- `ELEMENTS`: a word is one element, widened to the accumulator's type; multiply-adds.
- `PAIRS`: bf16 stays bf16, and a 32-bit word has two steps of k (a VNNI pair); the dot product of
  AVX512-BF16 adds both to an f32 lane.
- `TILES`: the same words, 16 rows of 16 of them in a tile register; AMX multiplies whole tiles.
- `QUADS`: a word has four steps of k of bytes; the dot product of VNNI, u8 by i8, adds all four to
  an i32 lane.
- `QUAD_TILES`: the same words in tile registers; AMX has an instruction for each pair of types.
- `I16_PAIRS`: bytes widened to i16, two steps of k in a word; `pmaddwd` of SSE2, AVX2 and
  AVX512-BW is their dot product, which cannot overflow.

`PAIRS` and `TILES` flush subnormal operands and results to zero, and round sums in another order,
see docs/fast-math.md. They apply to a matmul of two bf16 operands that accumulates in f32. Layouts
of bytes give the exact sum modulo 2**32.
"""

from __future__ import annotations

from nova.codegen.common.match_contraction import Contraction
from nova.core.records import record
from nova.core.targets import Target

TILE = 16
"""Rows of an AMX tile register, and 32-bit words of each row."""


@record
class PackedLayout:
    """A word has `per_word` steps of k; a block of k is a multiple of `per_cut` steps."""

    name: str
    per_word: int
    per_cut: int
    in_tiles: bool = False
    """Whether AMX multiplies the words, in tile registers."""

    @property
    def words_per_cut(self) -> int:
        return self.per_cut // self.per_word

    def word_type(self, acc_type: str) -> str:
        return acc_type if self.per_word == 1 else "i32"


ELEMENTS = PackedLayout("elements", 1, 1)
PAIRS = PackedLayout("pairs", 2, 2)
TILES = PackedLayout("tiles", 2, 2 * TILE, in_tiles=True)
QUADS = PackedLayout("quads", 4, 4)
QUAD_TILES = PackedLayout("quad_tiles", 4, 4 * TILE, in_tiles=True)
I16_PAIRS = PackedLayout("i16_pairs", 2, 2)


def choose_packed_layout(target: Target, spec: Contraction) -> PackedLayout:
    """The packed layout of a GEMM whose operands are packed.

    AMX tiles have one size: less than half a tile wastes most of it. A schedule override of the
    register tile selects a layout for vectors.
    """
    chosen = spec.overrides.mr is not None or spec.overrides.nv is not None
    if {spec.a_type, spec.b_type} <= {"i8", "u8"} and spec.acc_type == "i32":
        if target.has_byte_tiles and not chosen and not _is_small(spec, QUAD_TILES):
            return QUAD_TILES
        return QUADS if target.has_byte_dot else I16_PAIRS if target.has_i16_dot else ELEMENTS
    if (spec.a_type, spec.b_type, spec.acc_type) != ("bf16", "bf16", "f32"):
        return ELEMENTS
    if target.has_bf16_tiles and not chosen and not _is_small(spec, TILES):
        return TILES
    return PAIRS if target.has_fast_bf16_dot else ELEMENTS


def _is_small(spec: Contraction, layout: PackedLayout) -> bool:
    return bool(min(spec.m, spec.n, spec.k // layout.per_word) < TILE // 2)
