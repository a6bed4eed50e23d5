"""Wrong LLVM IR texts through `nova.translate(..., start_from="ll")`: an error, and no crash.

LLVM verifies what it can, and ends the process on the rest. `compile_text` runs the texts of a
batch in a process of its own, until one of them kills it; those go through the sandbox, which has
to say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import llvm_texts
import numpy as np
import pytest
from llvm_texts import mutate_text

import nova
from nova.api.translate.session import Request
from nova.compiler.driver import emit_code
from nova.compiler.recorder import Recorder
from nova.compiler.sandbox import run_sandboxed
from nova.core.settings import Settings
from nova.errors import CodegenError, SandboxError
from nova.frontends.source import Source

ROOT = Path(__file__).parents[2]
KINDS = {"x86_64-v3": "obj", "aarch64": "asm", "cuda:sm_80": "ptx"}


@pytest.fixture(scope="module")
def program() -> nova.Compiled:
    x = nova.tensor(np.ones((4, 24), np.float32), name="x")
    return nova.compile(nova.softmax(nova.relu(x)), inputs=[x])


def compile_foreign(text: str, target: str, emit: str) -> bytes:
    name = "nova.api.translate.session:run_request_in_child"
    request = Request(Source("-", text.encode()), [Settings(target)], emit, "ll", "main")
    code: bytes = run_sandboxed(name, request, stage="obj").data
    return code


def llvm_of(program: nova.Compiled, target: str) -> str:
    return nova.translate(program, targets=target, emit="ll").data.decode()


def run_texts(path: Path, target: str, first: int, last: int) -> tuple[Counter[str], list[int]]:
    """How many texts were compiled and refused, and the numbers of those that ended a process."""
    outcomes: Counter[str] = Counter()
    fatal = []
    while first < last:
        words = [path, KINDS[target], target, first, last]
        completed = subprocess.run(
            [sys.executable, llvm_texts.__file__, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        lines = completed.stdout.splitlines()
        outcomes.update(line.split()[1].rstrip(":") for line in lines if " " in line.strip())
        if completed.returncode == 0:
            break
        fatal.append(int(lines[-1].split()[0]))
        first = fatal[-1] + 1
    return outcomes, fatal


NIGHTLY = [pytest.param(t, 1_000_000, 1000, 1000, marks=pytest.mark.slow) for t in KINDS]


@pytest.mark.parametrize(
    ("target", "first", "count", "crashes"),
    [("x86_64-v3", 0, 80, 2), ("cuda:sm_80", 0, 80, 2), *NIGHTLY],
)
def test_damaged_texts(
    target: str, first: int, count: int, crashes: int, program: nova.Compiled, tmp_path: Path
) -> None:
    text = llvm_of(program, target)
    path = tmp_path / "sound.ll"
    path.write_text(text)
    outcomes, fatal = run_texts(path, target, first, first + count)
    assert outcomes.total() + len(fatal) == count
    assert outcomes["compiled"] > count / 20 and outcomes["refused"] > count / 2
    for number in fatal[:crashes]:
        with pytest.raises(
            SandboxError, match=r"stage (object|asm|ptx): the compiler (crashed|ended)"
        ):
            compile_foreign(mutate_text(text, number), target, KINDS[target])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            'call void asm sideeffect "nothing", ""()',
            r"(?s)the compiler .*Inline asm not supp",
        ),
        ("%bad = fadd i32 1, 2", "does not take the module"),
        ("ret void\nunused:\n  br label %nowhere", "does not take the module"),
        ("call void @nobody()", "does not take the module: .*nobody"),
    ],
)
def test_a_wrong_line(line: str, why: str, program: nova.Compiled) -> None:
    text = llvm_of(program, "x86_64-v3").replace("  ret void", f"  {line}\n  ret void", 1)
    with pytest.raises(CodegenError, match=why):
        nova.translate(text, targets="x86_64-v3", start_from="ll", emit="obj")


def test_a_wrong_text_is_found_without_a_process_of_its_own(program: nova.Compiled) -> None:
    """LLVM's parser would end the process, because of a flag that MLIR's texts have."""
    text = llvm_of(program, "x86_64-v3")
    assert "Debug Info Version" in text
    wrong = text.replace("  ret void", "  br label %3", 1)
    with pytest.raises(CodegenError, match="LLVM does not take the module: Entry block"):
        emit_code(wrong, Settings("x86_64-v3"), Recorder(), "ll", "obj")


def test_debug_information_is_kept() -> None:
    text = """define void @f() !dbg !3 { ret void, !dbg !4 }
!llvm.dbg.cu = !{!1}
!llvm.module.flags = !{!0}
!0 = !{i32 2, !"Debug Info Version", i32 3}
!1 = distinct !DICompileUnit(language: DW_LANG_C, file: !2, emissionKind: FullDebug)
!2 = !DIFile(filename: "where.c", directory: "/")
!3 = distinct !DISubprogram(name: "f", file: !2, line: 7, type: !5, unit: !1,
  spFlags: DISPFlagDefinition)
!4 = !DILocation(line: 8, scope: !3)
!5 = !DISubroutineType(types: !{})
"""
    code = nova.translate(text, targets="x86_64", start_from="ll", emit="asm").data.decode()
    assert ".debug_line" in code and "where.c" in code


def test_a_text_that_takes_too_long(program: nova.Compiled) -> None:
    text = llvm_of(program, "x86_64")
    with (
        nova.knobs.override(text_seconds=0),
        pytest.raises(SandboxError, match=r"took more than 0 seconds"),
    ):
        nova.translate(text, targets="x86_64", start_from="ll", emit="obj")
