"""mma.sync, ldmatrix and stmatrix: fragments laid out as the PTX manual has them, against numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from sim_programs import launch, make_kernel

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32}
LANE = np.arange(32)
GROUP, QUAD = LANE // 4, LANE % 4


def elements_of_a(per: int, registers: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Row and column of each element of a lane's fragment of A: `per` elements a register."""
    out = []
    for i in range(registers * per):
        register, part = divmod(i, per)
        row = GROUP + 8 * (register % 2)
        column = QUAD * per + part + 4 * per * (register // 2)
        out.append((row, column))
    return out


def elements_of_b(per: int, registers: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """k and column."""
    return [
        (QUAD * per + i % per + 4 * per * (i // per), GROUP + 0 * QUAD)
        for i in range(registers * per)
    ]


def elements_of_c() -> list[tuple[np.ndarray, np.ndarray]]:
    return [(GROUP + 8 * (i // 2), QUAD * 2 + i % 2) for i in range(4)]


def fragments(matrix: np.ndarray, positions: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """(lanes, words): what each lane has of a matrix."""
    return np.ascontiguousarray(np.stack([matrix[p] for p in positions], axis=1)).view(np.uint32)


SHAPES = [
    ("m16n8k16", "f32", "bf16"),
    ("m16n8k16", "f32", "f16"),
    ("m16n8k16", "f16", "f16"),
    ("m16n8k8", "f32", "bf16"),
    ("m16n8k8", "f32", "f16"),
    ("m16n8k8", "f16", "f16"),
    ("m16n8k8", "f32", "tf32"),
    ("m16n8k4", "f32", "tf32"),
]


def product_body(shape: str, to: str, source: str, counts: tuple[int, int, int]) -> str:
    """Fragments from %d1, %d2, %d3, the product to %d0."""
    body, number, names = [], 10, []
    for pointer, count in zip((1, 2, 3), (counts[1], counts[2], counts[0]), strict=True):
        private = []
        body.append(f"mul.wide.u32 %d10, %r2, {4 * count}; add.s64 %d10, %d{pointer}, %d10;")
        for i in range(count):
            private.append(f"%r{number}")
            body.append(f"ld.global.b32 %r{number}, [%d10+{4 * i}];")
            number += 1
        names.append("{" + ", ".join(private) + "}")
    out = [f"%r{30 + i}" for i in range(counts[0])]
    body.append(
        f"mma.sync.aligned.{shape}.row.col.{to}.{source}.{source}.{to} "
        f"{{{', '.join(out)}}}, {names[0]}, {names[1]}, {names[2]};"
    )
    body.append(f"mul.wide.u32 %d10, %r2, {4 * counts[0]}; add.s64 %d10, %d0, %d10;")
    body += [f"st.global.b32 [%d10+{4 * i}], {name};" for i, name in enumerate(out)]
    return "\n".join(body)


@pytest.mark.parametrize(("shape", "to", "source"), SHAPES)
def test_products(shape: str, to: str, source: str):
    depth = int(shape.split("k")[1])
    per = 1 if source == "tf32" else 2
    counts = (4 if to == "f32" else 2, 16 * depth // 32 // per, 8 * depth // 32 // per)
    random = np.random.default_rng(depth)
    # Small integers: every sum is exact, whatever its order.
    a = random.integers(-8, 9, (16, depth)).astype(DTYPES[source])
    b = random.integers(-8, 9, (depth, 8)).astype(DTYPES[source])
    c = random.integers(-100, 100, (16, 8)).astype(DTYPES[to])
    parts = [
        fragments(a, elements_of_a(per, counts[1])),
        fragments(b, elements_of_b(per, counts[2])),
    ]
    parts.append(fragments(c, elements_of_c()))
    text = make_kernel(product_body(shape, to, source, counts), 4)
    out = launch(text, [np.zeros_like(parts[2]), *parts])[0].view(DTYPES[to])
    truth = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    for i, location in enumerate(elements_of_c()):
        np.testing.assert_array_equal(out[:, i].astype(np.float64), truth[location])


def test_products_round_like_f32():
    """Numbers with all their digits: as good as a sum in f32."""
    random = np.random.default_rng(0)
    a = random.standard_normal((16, 16)).astype(ml_dtypes.bfloat16)
    b = random.standard_normal((16, 8)).astype(ml_dtypes.bfloat16)
    c = random.standard_normal((16, 8)).astype(np.float32)
    parts = [fragments(a, elements_of_a(2, 4)), fragments(b, elements_of_b(2, 2))]
    parts.append(fragments(c, elements_of_c()))
    text = make_kernel(product_body("m16n8k16", "f32", "bf16", (4, 4, 2)), 4)
    out = launch(text, [np.zeros_like(parts[2]), *parts])[0].view(np.float32)
    truth = a.astype(np.float64) @ b.astype(np.float64) + c
    for i, location in enumerate(elements_of_c()):
        np.testing.assert_allclose(out[:, i], truth[location], rtol=1e-5, atol=1e-5)


def test_tf32_ignores_the_low_bits():
    a = np.full((16, 4), 1 + 2**-12, np.float32)
    b, c = np.ones((4, 8), np.float32), np.zeros((16, 8), np.float32)
    parts = [fragments(a, elements_of_a(1, 2)), fragments(b, elements_of_b(1, 1))]
    parts.append(fragments(c, elements_of_c()))
    text = make_kernel(product_body("m16n8k4", "f32", "tf32", (4, 2, 1)), 4)
    assert (launch(text, [np.zeros_like(parts[2]), *parts])[0].view(np.float32) == 4).all()


def test_products_of_f64():
    body = """
    mul.wide.u32 %d10, %r2, 8; add.s64 %d11, %d1, %d10; add.s64 %d12, %d2, %d10;
    mul.wide.u32 %d10, %r2, 16; add.s64 %d13, %d3, %d10; add.s64 %d14, %d0, %d10;
    ld.global.f64 %d20, [%d11]; ld.global.f64 %d21, [%d12]; ld.global.v2.f64 {%d22, %d23}, [%d13];
    mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d24, %d25}, {%d20}, {%d21}, {%d22, %d23};
    st.global.v2.f64 [%d14], {%d24, %d25};
    """
    random = np.random.default_rng(1)
    a, b, c = (random.integers(-50, 50, s).astype("f8") for s in ((8, 4), (4, 8), (8, 8)))
    out = launch(make_kernel(body, 4), [np.zeros((8, 8)), a, b.T.copy(), c])[0]
    np.testing.assert_array_equal(out, a @ b + c)


# --- ldmatrix, stmatrix -------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_loads_of_matrices(count: int, transposed: bool):
    """Rows of 16 bytes with gaps between them, the address of each given by a lane."""
    trans = ".trans" if transposed else ""
    names = ", ".join(f"%r{20 + i}" for i in range(count))
    body = f"""
    .shared .align 16 .b8 tile[2048];
    mov.u32 %r3, tile; mad.lo.s32 %r4, %r2, 48, %r3;
    mul.wide.u32 %d10, %r2, 16; add.s64 %d10, %d1, %d10;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%d10];
    st.shared.v4.b32 [%r4], {{%r10, %r11, %r12, %r13}};
    bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{names}}}, [%r4];
    mul.wide.u32 %d10, %r2, {4 * count}; add.s64 %d10, %d0, %d10;
    """
    body += "".join(f"st.global.b32 [%d10+{4 * i}], %r{20 + i};\n" for i in range(count))
    data = np.arange(32 * 8, dtype=np.uint16).reshape(32, 8)
    out = launch(make_kernel(body, 2), [np.zeros((32, count, 2), np.uint16), data])[0]
    for number in range(count):
        matrix = data[8 * number : 8 * number + 8]
        matrix = matrix.T if transposed else matrix
        for part in range(2):
            np.testing.assert_array_equal(out[:, number, part], matrix[GROUP, QUAD * 2 + part])


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_stores_of_matrices(count: int, transposed: bool):
    trans = ".trans" if transposed else ""
    names = ", ".join(f"%r{20 + i}" for i in range(count))
    loads = "".join(f"ld.global.b32 %r{20 + i}, [%d10+{4 * i}];\n" for i in range(count))
    body = f"""
    .shared .align 16 .b8 tile[512];
    mov.u32 %r3, tile; mad.lo.s32 %r4, %r2, 16, %r3;
    mul.wide.u32 %d10, %r2, {4 * count}; add.s64 %d10, %d1, %d10;
    {loads}
    stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r4], {{{names}}};
    bar.sync 0;
    setp.ge.u32 %p1, %r2, {8 * count}; @%p1 ret;
    ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r4];
    mul.wide.u32 %d10, %r2, 16; add.s64 %d10, %d0, %d10;
    st.global.v4.b32 [%d10], {{%r10, %r11, %r12, %r13}};
    """
    data = np.random.default_rng(count).integers(0, 1 << 16, (32, count, 2)).astype(np.uint16)
    out = launch(make_kernel(body, 2), [np.zeros((8 * count, 8), np.uint16), data])[0]
    for number in range(count):
        matrix = out[8 * number : 8 * number + 8]
        matrix = matrix.T if transposed else matrix
        for part in range(2):
            np.testing.assert_array_equal(matrix[GROUP, QUAD * 2 + part], data[:, number, part])
