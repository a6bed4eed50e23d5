"""LLVM IR texts with a mistake, by number: the same number gives the same text.

`mutate_text` damages a sound text at one or a few places, as somebody does who edits it: words,
lines, types and numbers. Run as a script it compiles the texts of some numbers, in a process of its
own: `llvm_texts.py FILE EMIT TARGET FIRST LAST` prints each number before it and what came of it
behind it.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

from nova.compiler.driver import emit_code
from nova.compiler.recorder import Recorder
from nova.core.settings import Settings
from nova.errors import CodegenError

WORD = re.compile(r'[%@!#]?[\w.$-]+|"[^"\n]*"|[^\s\w]')
NUMBER = re.compile(r"(?<![\w.%@!#])\d+(?![\w.])")
NUMBERS = ("0", "1", "2", "3", "7", "64", "1024", "4294967296", "9223372036854775807", "-1")
TYPES = (
    *("i1", "i8", "i32", "i64", "i128", "half", "float", "double", "ptr", "void", "label", "token"),
    *("metadata", "x86_fp80", "<3 x i1>", "<0 x float>", "<vscale x 4 x i32>", "{}", "[0 x ptr]"),
)
OPS = (
    *("add", "sub", "mul", "sdiv", "fadd", "fmul", "fneg", "shl", "and", "xor", "load", "store"),
    *("br", "ret", "call", "switch", "phi", "select", "getelementptr", "alloca", "fence"),
    *("unreachable", "extractelement", "insertvalue", "freeze"),
)
LINES = (
    "unreachable",
    "ret void",
    "br label %0",
    "%bad = load atomic i32, ptr null seq_cst, align 3",
    "%bad = alloca i8, i64 -1, align 4294967296",
    'call void asm sideeffect "no such instruction", ""()',
    'fence syncscope("nobody") acquire',
    "%bad = call i32 @llvm.ctpop.i32(i64 1)",
    'call void @llvm.assume(i1 undef) [ "align"(ptr null, i64 3) ]',
    "%bad = cmpxchg ptr null, i32 0, i32 1 release monotonic",
    "%bad = addrspacecast ptr null to ptr addrspace(300)",
    "%bad = call float @llvm.x86.avx512.mask.no.such(float 1.0)",
    "%bad = va_arg ptr null, i256",
    "indirectbr ptr null, []",
    "call void @llvm.dbg.value(metadata i32 0, metadata !0, metadata !0)",
)
TOPS = (
    'target triple = "nowhere-none-nothing"',
    'target datalayout = "e-p:7:9-i64:3"',
    "!llvm.dbg.cu = !{!0}",
    '!llvm.module.flags = !{!{i32 1, !"Debug Info Version", i32 3}}',
    "@bad = global [9223372036854775807 x i64] zeroinitializer",
    "@bad = alias void (), ptr @bad",
    "@bad = external thread_local global i32, align 1",
    'module asm "no such directive"',
    "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i32, i1)",
    "declare i32 @llvm.ctpop.i32(i64)",
    "attributes #0 = { alignstack(3) vscale_range(0,7) }",
    "%bad = type { %bad }",
    "define void @bad() personality ptr null { ret void }",
)


def mutate_text(text: str, number: int) -> str:
    """The damaged text of a number."""
    rng = random.Random(number)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        text = rng.choice(CHANGES)(rng, text)
    return text


def _change_word(rng: random.Random, text: str) -> str:
    """A word of the text in the place of another."""
    words = list(WORD.finditer(text))
    at, second = rng.choice(words), rng.choice(words)
    return text[: at.start()] + second[0] + text[at.end() :]


def _drop_word(rng: random.Random, text: str) -> str:
    at = rng.choice(list(WORD.finditer(text)))
    return text[: at.start()] + text[at.end() :]


def _change_number(rng: random.Random, text: str) -> str:
    at = rng.choice(list(NUMBER.finditer(text)))
    return text[: at.start()] + rng.choice(NUMBERS) + text[at.end() :]


def _change_one_of(rng: random.Random, text: str, words: tuple[str, ...]) -> str:
    result = list(re.finditer(rf"(?<![\w.%@])(?:{'|'.join(map(re.escape, words))})(?![\w.])", text))
    at = rng.choice(result)
    return text[: at.start()] + rng.choice(words) + text[at.end() :]


def _change_type(rng: random.Random, text: str) -> str:
    return _change_one_of(rng, text, TYPES)


def _change_op(rng: random.Random, text: str) -> str:
    return _change_one_of(rng, text, OPS)


def _change_lines(rng: random.Random, text: str) -> str:
    """A line away, twice, or in another place."""
    lines = text.splitlines(keepends=True)
    at, second = rng.randrange(len(lines)), rng.randrange(len(lines))
    line = lines[at]
    if rng.random() < 0.6:
        del lines[at]
    if rng.random() < 0.6:
        lines.insert(second, line)
    return "".join(lines)


def _add_line(rng: random.Random, text: str) -> str:
    """An instruction that is wrong, in some function."""
    lines = text.splitlines(keepends=True)
    inside = [i for i, line in enumerate(lines) if line.startswith("  ")]
    lines.insert(rng.choice(inside), f"  {rng.choice(LINES)}\n")
    return "".join(lines)


def _add_top(rng: random.Random, text: str) -> str:
    return f"{text}\n{rng.choice(TOPS)}\n"


CHANGES = (
    _change_word,
    _drop_word,
    _change_number,
    _change_type,
    _change_op,
    _change_lines,
    _add_line,
    _add_top,
)


def main(path: str, emit: str, target: str, first: int, last: int) -> None:
    text = Path(path).read_text()
    for number in range(first, last):
        print(number, end=" ", flush=True)
        try:
            emit_code(mutate_text(text, number), Settings(target), Recorder(), "ll", emit)
            print("compiled", flush=True)
        except CodegenError as error:
            print("refused:", error.what.splitlines()[0], flush=True)


if __name__ == "__main__":
    file, emit, target, first, last = sys.argv[1:]
    main(file, emit, target, int(first), int(last))
