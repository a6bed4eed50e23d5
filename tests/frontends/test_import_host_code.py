"""Host code around hand-written launches: loops, branches, numbers, copies and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova.artifact.format import read_artifact
from nova.errors import ImportedProgramError, UnsupportedOpError

# y[i] = a * x[i] + k for i below n; counts its blocks in c[0].
KERNELS = """module attributes {gpu.container_module} {
  memref.global "private" constant @unused : memref<1xf32> = dense<0.0>
  gpu.module @code {
    gpu.func @axpb(%n: index, %a: f32, %x: memref<64xf32>, %k: i32, %y: memref<64xf32>) kernel {
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %d = gpu.block_dim x
      %0 = arith.muli %b, %d : index
      %i = arith.addi %0, %t : index
      %in = arith.cmpi slt, %i, %n : index
      scf.if %in {
        %1 = memref.load %x[%i] : memref<64xf32>
        %2 = arith.mulf %1, %a : f32
        %3 = arith.sitofp %k : i32 to f32
        %4 = arith.addf %2, %3 : f32
        memref.store %4, %y[%i] : memref<64xf32>
      }
      gpu.return
    }
    gpu.func @vectors(%v: vector<4xf32>) kernel {
      gpu.return
    }
    gpu.func @reverse(%x: memref<64xf32>) workgroup(%s: memref<32xf32, 3>) kernel {
      %c31 = arith.constant 31 : index
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %i = gpu.global_id x
      %0 = memref.load %x[%i] : memref<64xf32>
      memref.store %0, %s[%t] : memref<32xf32, 3>
      gpu.barrier
      %j = arith.subi %c31, %t : index
      %1 = memref.load %s[%j] : memref<32xf32, 3>
      memref.store %1, %x[%i] : memref<64xf32>
      gpu.return
    }
  }
"""
SIZES = """
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c32 = arith.constant 32 : index
  %c64 = arith.constant 64 : index
  %two = arith.constant 2.0 : f32
  %one = arith.constant 1.0 : f32
  %i0 = arith.constant 0 : i32
  %i1 = arith.constant 1 : i32
"""
AXPB = "gpu.launch_func {} @code::@axpb blocks in (%c2, %c1, %c1) threads in (%c32, %c1, %c1)"


def axpb(n: str, a: str, x: str, k: str, y: str, tokens: str = "") -> str:
    return (
        AXPB.format(tokens) + f" args({n} : index, {a} : f32, {x} : memref<64xf32>, {k} : i32,"
        f" {y} : memref<64xf32>)"
    )


def text(signature: str, body: str) -> str:
    return f"{KERNELS}  func.func @main({signature} {{{SIZES}{body}\n  }}\n}}\n"


def load(source: str, tmp_path: Path, target: str = "cuda:sm_80") -> Any:
    nova.translate(source, targets=target).save(tmp_path / "p.nova")
    return nova.load(tmp_path / "p.nova", device="sim")


X = np.linspace(-3, 3, 64, dtype="f4")


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_loop_with_numbers_and_buffers(tmp_path: Path, target: str) -> None:
    """Iterations pass their counter on, and the buffer that one frees is that of the next."""
    source = text(
        "%x: memref<64xf32>) -> memref<64xf32>",
        f"""
    %y = memref.alloc() : memref<64xf32>
    memref.copy %x, %y : memref<64xf32> to memref<64xf32>
    scf.for %i = %c0 to %c32 step %c2 {{
      %k = arith.index_cast %i : index to i32
      %t = memref.alloc() : memref<64xf32>
      {axpb("%c64", "%one", "%y", "%k", "%t")}
      scf.for %j = %c0 to %c2 step %c1 {{
        {axpb("%i", "%two", "%t", "%i0", "%y")}
      }}
      memref.dealloc %t : memref<64xf32>
    }}
    return %y : memref<64xf32>""",
    )
    want = X.copy()
    for i in range(0, 32, 2):
        t = want + i
        want[:i] = 2 * t[:i]
    translated = nova.translate(source, targets=target)
    np.testing.assert_allclose(load(source, tmp_path, target)(X), want, rtol=1e-6)
    tables = read_artifact(translated.data).tables(0)
    assert len(tables.launches) == 1 + 16 * 3
    assert len(tables.kernels) == 2, "a copy and one kernel, however often they are launched"
    assert tables.workspace_size == 256, "one temporary buffer for all iterations"


def test_numbers_are_arguments(tmp_path: Path) -> None:
    source = text(
        "%x: memref<64xf32>, %a: f32, %n: index, %k: i32, %m: i64, %f: i1, %y: memref<64xf32>)",
        f"""
    %m32 = arith.trunci %m : i64 to i32
    %sum = arith.addi %k, %m32 : i32
    %chosen = arith.select %f, %sum, %k : i32
    %half = arith.divui %n, %c2 : index
    {axpb("%n", "%a", "%x", "%k", "%y")}
    {axpb("%half", "%a", "%x", "%chosen", "%y")}
    return""",
    )
    program = load(source, tmp_path)
    for n, k, m, flag in ((40, 5, -7, True), (64, -1, 2**33 + 3, False), (1, 0, 0, True)):
        y = np.zeros(64, "f4")
        inputs = [X, np.float32(1.5), np.int64(n), np.int32(k), np.int64(m), np.bool_(flag)]
        program.run(inputs, [y])
        want = np.zeros(64, "f4")
        want[:n] = 1.5 * X[:n] + k
        added = np.array(m, "i8").astype("i4")
        want[: n // 2] = 1.5 * X[: n // 2] + (k + added if flag else k)
        np.testing.assert_allclose(y, want, rtol=1e-6)


def test_copies_and_tokens(tmp_path: Path) -> None:
    """The form in which frameworks write it: everything waits for tokens."""
    source = text(
        "%x: memref<64xf32>, %y: memref<64xf32>)",
        f"""
    %t0 = gpu.wait async
    %d, %t1 = gpu.alloc async [%t0] () : memref<64xf32>
    %e, %t2 = gpu.alloc async [%t0] () : memref<64xf32>
    %t3 = gpu.memcpy async [%t1] %d, %x : memref<64xf32>, memref<64xf32>
    %t4 = gpu.memset async [%t2] %e, %two : memref<64xf32>, f32
    %t5 = {axpb("%c32", "%two", "%d", "%i1", "%e", "async [%t3, %t4]")}
    %last = scf.for %i = %c0 to %c2 step %c1 iter_args(%before = %t5) -> (!gpu.async.token) {{
      %t6 = {axpb("%c64", "%two", "%e", "%i1", "%e", "async [%before]")}
      scf.yield %t6 : !gpu.async.token
    }}
    %t7 = gpu.memcpy async [%last] %y, %e : memref<64xf32>, memref<64xf32>
    %t8 = gpu.dealloc async [%t7] %d : memref<64xf32>
    %t9 = gpu.dealloc async [%t8] %e : memref<64xf32>
    gpu.wait [%t9]
    return""",
    )
    y = np.zeros(64, "f4")
    load(source, tmp_path).run([X], [y])
    want = np.full(64, 2.0, "f4")
    want[:32] = 2 * X[:32] + 1
    for _ in range(2):
        want = 2 * want + 1
    np.testing.assert_allclose(y, want, rtol=1e-6)


def test_grid_that_only_a_run_knows(tmp_path: Path) -> None:
    """Blocks use shared memory and barriers, and there are as many as the number says."""
    source = text(
        "%n: i32, %x: memref<64xf32>)",
        """
    %blocks = arith.index_cast %n : i32 to index
    gpu.launch_func @code::@reverse blocks in (%blocks, %c1, %c1) threads in (%c32, %c1, %c1)
      args(%x : memref<64xf32>)
    return""",
    )
    program = load(source, tmp_path)
    for blocks in (0, 1, 2):
        x = X.copy()
        program.run([np.int32(blocks)], [x])
        want = X.reshape(2, 32).copy()
        want[:blocks] = want[:blocks, ::-1]
        np.testing.assert_array_equal(x, want.ravel())


def test_kernels_with_jumps_and_all_types_of_numbers(tmp_path: Path) -> None:
    """A function of several blocks, under a condition and over a grid that only a run knows."""
    source = """module attributes {gpu.container_module} {
  gpu.module @m {
    gpu.func @k(%x: memref<64xf32>, %v: f64, %h: f16, %b: i1, %c: i8) kernel {
      %i = gpu.global_id x
      %c64 = arith.constant 64 : index
      %in = arith.cmpi slt, %i, %c64 : index
      cf.cond_br %in, ^bb1, ^bb2
    ^bb1:
      %0 = memref.load %x[%i] : memref<64xf32>
      %f = arith.truncf %v : f64 to f32
      %g = arith.extf %h : f16 to f32
      %ci = arith.sitofp %c : i8 to f32
      %s = arith.addf %f, %g : f32
      %s2 = arith.select %b, %s, %ci : f32
      %1 = arith.addf %0, %s2 : f32
      memref.store %1, %x[%i] : memref<64xf32>
      gpu.return
    ^bb2:
      gpu.return
    }
  }
  func.func @main(%v: f64, %h: f16, %b: i1, %c: i8, %p: i1, %n: i32, %x: memref<64xf32>) {
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %g = arith.index_cast %n : i32 to index
    scf.if %p {
      gpu.launch_func @m::@k blocks in (%g, %c1, %c1) threads in (%c16, %c1, %c1)
        args(%x : memref<64xf32>, %v : f64, %h : f16, %b : i1, %c : i8)
    }
    return
  }
}
"""
    program = load(source, tmp_path)
    for chosen, sums in ((True, True), (True, False), (False, True)):
        x, want = X.copy(), X.copy()
        numbers = [np.float64(1.25), np.float16(0.5), np.bool_(sums), np.int8(-3)]
        program.run([*numbers, np.bool_(chosen), np.int32(3)], [x])
        want[:48] += np.float32(chosen * (1.75 if sums else -3))
        np.testing.assert_array_equal(x, want)


def test_branches(tmp_path: Path) -> None:
    """Conditions that only a run knows, one in the other, with a number that comes out."""
    source = text(
        "%p: i1, %n: i32, %x: memref<64xf32>) -> (i32, f32)",
        f"""
    %positive = arith.cmpi sgt, %n, %i0 : i32
    %r = scf.if %positive -> (i32) {{
      {axpb("%c64", "%two", "%x", "%n", "%x")}
      %s = scf.if %p -> (i32) {{
        gpu.launch_func @code::@reverse blocks in (%c2, %c1, %c1) threads in (%c32, %c1, %c1)
          args(%x : memref<64xf32>)
        %u = arith.muli %n, %n : i32
        scf.yield %u : i32
      }} else {{
        {axpb("%c32", "%one", "%x", "%i1", "%x")}
        scf.yield %i1 : i32
      }}
      scf.yield %s : i32
    }} else {{
      memref.store %one, %x[%c0] : memref<64xf32>
      {axpb("%c2", "%two", "%x", "%i1", "%x")}
      scf.yield %n : i32
    }}
    %first = memref.load %x[%c1] : memref<64xf32>
    {axpb("%c2", "%two", "%x", "%r", "%x")}
    return %r, %first : i32, f32""",
    )
    program = load(source, tmp_path)
    for p, n in ((True, 3), (False, 3), (True, -2), (False, 0)):
        x = X.copy()
        actual, first = program.run([np.bool_(p), np.int32(n)], [x])
        want = X.copy()
        if n > 0:
            want = 2 * want + n
            if p:
                want = want.reshape(2, 32)[:, ::-1].reshape(64).copy()
            else:
                want[:32] += 1
            result = n * n if p else 1
        else:
            want[0] = 1
            want[:2] = 2 * want[:2] + 1
            result = n
        observed = want[1]
        want[:2] = 2 * want[:2] + result
        assert int(actual) == result and np.isclose(first, observed)
        np.testing.assert_allclose(x, want, rtol=1e-6)


def test_loops_that_only_a_run_knows(tmp_path: Path) -> None:
    """A loop in a loop, with values that change places, and a temporary buffer."""
    source = text(
        "%n: i32, %m: index, %x: memref<64xf32>) -> (i32, i32)",
        f"""
    %i3 = arith.constant 3 : i32
    %r:2 = scf.for %i = %i0 to %n step %i1 iter_args(%p = %i0, %q = %i1) -> (i32, i32) : i32 {{
      %t = memref.alloc() : memref<64xf32>
      {axpb("%c64", "%one", "%x", "%q", "%t")}
      scf.for %j = %c0 to %m step %c2 {{
        {axpb("%j", "%two", "%t", "%i", "%t")}
      }}
      {axpb("%c64", "%one", "%t", "%i0", "%x")}
      memref.dealloc %t : memref<64xf32>
      %s = arith.addi %p, %q : i32
      scf.yield %q, %s : i32, i32
    }}
    return %r#0, %r#1 : i32, i32""",
    )
    program = load(source, tmp_path)
    for n, m in ((0, 4), (1, 0), (5, 7), (3, -2)):
        x, want = X.copy(), X.copy()
        actual = program.run([np.int32(n), np.int64(m)], [x])
        p, q = 0, 1
        for i in range(n):
            t = want + np.float32(q)
            for j in range(0, m, 2):
                t[:j] = 2 * t[:j] + np.float32(i)
            want = t
            p, q = q, p + q
        assert [int(v) for v in actual] == [p, q]
        np.testing.assert_allclose(x, want, rtol=1e-6)


def test_while_loops_of_the_host(tmp_path: Path) -> None:
    """The condition is what a kernel made: halve until the first element is small."""
    source = text(
        "%limit: f32, %p: i1, %x: memref<64xf32>) -> i32",
        f"""
    %half = arith.constant 0.5 : f32
    %r = scf.if %p -> (i32) {{
      %count = scf.while (%k = %i0) : (i32) -> i32 {{
        %first = memref.load %x[%c0] : memref<64xf32>
        %large = arith.cmpf ogt, %first, %limit : f32
        scf.condition(%large) %k : i32
      }} do {{
      ^bb0(%k: i32):
        {axpb("%c64", "%half", "%x", "%i0", "%x")}
        %next = arith.addi %k, %i1 : i32
        scf.yield %next : i32
      }}
      scf.yield %count : i32
    }} else {{
      scf.yield %i0 : i32
    }}
    return %r : i32""",
    )
    program = load(source, tmp_path)
    for first, limit, chosen in ((100.0, 1.0, True), (0.5, 1.0, True), (8.0, 1.0, False)):
        x = np.full(64, first, "f4")
        count = program.run([np.float32(limit), np.bool_(chosen)], [x])
        want, steps = first, 0
        while chosen and want > limit:
            want, steps = want / 2, steps + 1
        assert int(count) == steps
        np.testing.assert_array_equal(x, np.full(64, want, "f4"))


def test_long_loops_are_not_written_out(tmp_path: Path) -> None:
    source = text(
        "%x: memref<64xf32>)",
        f"""
    %many = arith.constant 5000 : index
    scf.for %i = %c0 to %many step %c1 {{
      {axpb("%c64", "%one", "%x", "%i1", "%x")}
    }}
    return""",
    )
    x = np.zeros(64, "f4")
    load(source, tmp_path).run([], [x])
    np.testing.assert_array_equal(x, np.full(64, 5000, "f4"))
    stages = nova.translate(source, targets="cuda:sm_80").stages
    assert stages["outlined"].count("scf.while") == 1
    again = nova.translate(stages["outlined"], targets="cuda:sm_80", start_from="outlined")
    tables = read_artifact(again.data).tables(0)
    [loop] = [kernel for kernel in tables.kernels if kernel.core == "while"]
    assert (loop.grid, len(tables.launches)) == (2, 4)


def test_arithmetic_loops_of_the_host(tmp_path: Path) -> None:
    """Loops without launches are one thread's: here the sum of squares of the first n."""
    source = text(
        "%n: index, %x: memref<64xf32>) -> f32",
        f"""
    %zero = arith.constant 0.0 : f32
    %sum = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (f32) {{
      %v = memref.load %x[%i] : memref<64xf32>
      %q = arith.mulf %v, %v : f32
      %t = arith.addf %s, %q : f32
      scf.yield %t : f32
    }}
    {axpb("%n", "%sum", "%x", "%i0", "%x")}
    return %sum : f32""",
    )
    program = load(source, tmp_path)
    for n in (0, 5, 64):
        x = X.copy()
        total = program.run([np.int64(n)], [x])
        want = np.sum(X[:n].astype("f8") ** 2)
        np.testing.assert_allclose(total, want, rtol=1e-5)
        np.testing.assert_allclose(x[:n], X[:n] * want, rtol=1e-5)
        np.testing.assert_array_equal(x[n:], X[n:])


def test_iterations_share_their_arithmetic(tmp_path: Path) -> None:
    source = text(
        "%k: i32, %x: memref<64xf32>)",
        f"""
    scf.for %i = %c0 to %c32 step %c1 {{
      %j = arith.index_cast %i : index to i32
      %s = arith.muli %j, %k : i32
      {axpb("%c64", "%one", "%x", "%s", "%x")}
    }}
    return""",
    )
    x = X.copy()
    load(source, tmp_path).run([np.int32(3)], [x])
    np.testing.assert_allclose(x, X + 3 * sum(range(32)), rtol=1e-5)
    assert nova.translate(source, targets="cuda:sm_80").stages["ptx"].count(".entry") == 4


def test_both_halves_are_in_the_file() -> None:
    """The launches of the host's loop are the table, its code and the kernels are the PTX."""
    source = text(
        "%x: memref<64xf32>, %a: f32)",
        f"""
    %b = arith.mulf %a, %a : f32
    scf.for %i = %c0 to %c32 step %c1 {{
      {axpb("%i", "%b", "%x", "%i1", "%x")}
    }}
    return""",
    )
    translated = nova.translate(source, targets="cuda:sm_80")
    artifact = read_artifact(translated.data)
    tables = artifact.tables(0)
    assert [tables.kernels[launch.kernel].symbol for launch in tables.launches] == [
        "numbers",
        *["axpb"] * 32,
    ]
    assert translated.data.count(b".visible .entry axpb(") == 1
    assert translated.data.count(b".visible .entry numbers(") == 1
    assert b"_mlir_ciface_main" in translated.data
    args = [(a.name, a.shape, a.dtype, a.role) for a in artifact.manifest.args]
    assert args == [("arg1", (), "f32", "input"), ("arg0", (64,), "f32", "param")]


REFUSED: dict[str, tuple[str, str, type[nova.NovaError], str]] = {
    "threads": (
        "%n: index, %x: memref<64xf32>)",
        "gpu.launch_func @code::@reverse blocks in (%c1, %c1, %c1) threads in (%n, %c1, %c1)"
        " args(%x : memref<64xf32>)",
        UnsupportedOpError,
        "a size that is not a constant",
    ),
    "type": (
        "%x: memref<64xf32>)",
        "%v = arith.constant dense<1.0> : vector<4xf32>\n"
        "gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)"
        " threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {\n"
        "vector.store %v, %x[%tx] : memref<64xf32>, vector<4xf32>\ngpu.terminator\n}\n"
        "gpu.launch_func @code::@vectors blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)"
        " args(%v : vector<4xf32>)",
        UnsupportedOpError,
        "@vectors is given a vector<4xf32>",
    ),
    "op": (
        "%x: memref<64xf32>)",
        "%v = vector.broadcast %one : f32 to vector<4xf32>\nvector.print %v : vector<4xf32>\n"
        + axpb("%c1", "%one", "%x", "%i1", "%x"),
        UnsupportedOpError,
        "vector.print between launches",
    ),
    "branch": (
        "%p: i1, %x: memref<64xf32>)",
        "%m = scf.if %p -> (memref<64xf32>) {\n %t = memref.alloc() : memref<64xf32>\n"
        " scf.yield %t : memref<64xf32>\n} else {\n scf.yield %x : memref<64xf32>\n}\n"
        + axpb("%c1", "%one", "%m", "%i1", "%x"),
        UnsupportedOpError,
        "scf.if around launches that hands on a memref<64xf32>",
    ),
    "number": (
        "%k: i4, %x: memref<64xf32>)",
        axpb("%c1", "%one", "%x", "%i1", "%x"),
        ImportedProgramError,
        "an argument has the type i4",
    ),
    "view": (
        "%i: memref<i64>, %x: memref<128xf32>)",
        "%n = memref.load %i[] : memref<i64>\n%at = arith.index_cast %n : i64 to index\n"
        "%s = memref.subview %x[%at] [64] [1] : memref<128xf32> to"
        " memref<64xf32, strided<[1], offset: ?>>\n"
        "gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)"
        " threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {\n"
        "memref.store %one, %s[%tx] : memref<64xf32, strided<[1], offset: ?>>\n"
        "gpu.terminator\n}",
        ImportedProgramError,
        "rows one after the other",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    signature, body, error, message = REFUSED[name]
    source = text(signature, f"{body}\n    return")
    with pytest.raises(error, match=message.replace("(", r"\(")) as caught:
        nova.translate(source, targets="cuda:sm_80")
    line = int(str(caught.value.where).split(":")[1])
    lines = source.splitlines()
    assert line >= lines.index(next(r for r in lines if "func.func @main" in r)) + 1
    assert caught.value.hint is not None or "view" in name
