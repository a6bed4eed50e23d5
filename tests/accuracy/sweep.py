"""The error of Nova's f32 functions over all bit patterns, or every n-th of them.

    python tests/accuracy/sweep.py --target x86_64-v3 exp log     # all 2**32 patterns, minutes each

In: names of functions, a target this machine can run, a stride. Out: a `Report` for each; the
command puts them into docs/math-accuracy.json, from which `table.py` writes the page. Called by
`test_sweep.py`, too. The program is what a user compiles, by `nova.compile`; the judge is
`oracle.c`.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import nova

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "docs" / "math-accuracy.json"
PATTERNS = 2**32
# A chunk's argument and result stay in the second-level cache.
CHUNK = 2**16

# The seven that other ops are made of come first, as in the table.
FUNCTIONS = ("exp", "log", "tanh", "erf", "sigmoid", "sin", "cos")
FUNCTIONS += ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "exp2", "expm1")
FUNCTIONS += ("log10", "log1p", "log2", "rsqrt", "sinh", "tan")


class RawReport(ctypes.Structure):
    """`struct report` of oracle.c."""

    _fields_ = (
        ("ulp", ctypes.c_double),
        *((name, ctypes.c_uint64) for name in ("at", "nan", "inf", "zero", "subnormal")),
    )


@dataclass(frozen=True)
class Report:
    """What a sweep found: the worst error and where, and how many special values were wrong."""

    patterns: int
    ulp: float
    at: str  # the argument with the worst error, as C writes a float in hexadecimal
    nan: int
    inf: int
    zero: int
    subnormal: int

    @property
    def wrong(self) -> int:
        return self.nan + self.inf + self.zero + self.subnormal


@functools.cache
def oracle() -> ctypes.CDLL:
    """`oracle.c`, compiled for this machine once a process."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "oracle.so"
        flags = ["-std=c11", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"]
        flags += ["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        command = ["gcc", *flags, str(HERE / "oracle.c"), "-o", str(library), "-lm"]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))


def compile_function(name: str, target: str, size: int) -> nova.Compiled:
    x = nova.tensor(np.empty(size, np.float32), name="x")
    return nova.compile(getattr(nova, name)(x), inputs=[x], target=target)


def judge(name: str, report: RawReport, first: int, stride: int, actual: np.ndarray) -> None:
    """Add to `report` what is wrong with results for the patterns first, first + stride, ..."""
    arguments = (ctypes.c_uint32(first), ctypes.c_uint32(stride), ctypes.c_size_t(actual.size))
    data = ctypes.c_void_p(actual.ctypes.data)
    getattr(oracle(), f"check_{name}")(ctypes.byref(report), *arguments, data)


def sweep(name: str, target: str, stride: int = 1, part: int = 0, parts: int = 1) -> Report:
    """Nova's `name` on `target`, at the bit patterns 0, stride, 2 * stride, ...

    Of those it takes chunk number `part` and every one that is `parts` further on.
    """
    compiled = compile_function(name, target, CHUNK)
    report = RawReport()
    count = -(-PATTERNS // stride)
    offsets = np.arange(CHUNK, dtype=np.uint32) * np.uint32(stride)
    bits, out = np.empty(CHUNK, np.uint32), np.empty(CHUNK, np.float32)
    observed = 0
    for start in range(part * CHUNK, count, parts * CHUNK):
        first = start * stride
        # The last chunk may run past the last pattern; the judge stops there.
        np.add(offsets, np.uint32(first), out=bits)
        compiled.run([bits.view(np.float32)], out=[out])
        length = min(CHUNK, count - start)
        judge(name, report, first, stride, out[:length])
        observed += length
    at = float(np.uint32(report.at).view(np.float32))
    fields = {f: getattr(report, f) for f in ("nan", "inf", "zero", "subnormal")}
    return Report(observed, round(report.ulp, 4), at.hex(), **fields)


def record(name: str, target: str, report: Report, path: Path = RESULTS) -> None:
    """Put one report into the file of results."""
    results = json.loads(path.read_text())
    rows = results["f32"].setdefault(target, {})
    rows[name] = asdict(report)
    results["f32"][target] = dict(sorted(rows.items()))
    path.write_text(json.dumps(results, indent=1) + "\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sweep", description=__doc__.partition("\n")[0])
    parser.add_argument("functions", nargs="*", metavar="FUNCTION", help="the default is all")
    parser.add_argument("--target", default="x86_64-v3")
    parser.add_argument("--stride", type=int, default=1, help="take every n-th bit pattern")
    args = parser.parse_args(argv)
    if unknown := set(args.functions) - set(FUNCTIONS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(FUNCTIONS)}")
    wrong = 0
    for name in args.functions or FUNCTIONS:
        report = sweep(name, args.target, args.stride)
        print(name, args.target, report, flush=True)
        wrong += report.wrong
        if args.stride == 1:
            record(name, args.target, report)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
