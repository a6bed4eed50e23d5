"""Programs as text, sound and damaged: the same number gives the same text.

`write_seeds` compiles a few programs and keeps the text of every stage, for CPUs and for a GPU, and
adds imported programs, plans and PTX. `mutate` damages one of them at one or a few places, as
somebody does who edits it or who wants to do harm: words, numbers, types, lines, attributes. Called
by `text_child.py`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nova

WORD = re.compile(r'[%@!#^]?[\w.$-]+|"[^"\n]*"|[^\s\w]')
NUMBER = re.compile(r"(?<![\w.%@!#^])-?\d+(?![\w.])")
SIZED = re.compile(r"(?<=[<x])\d+(?=x)")
NAME = re.compile(r"%\w+")
OP = re.compile(r"\b(?:nova|stablehlo|tosa|linalg|arith|math|tensor|vector|memref|llvm|scf)\.\w+")
NUMBERS = (
    *("0", "1", "2", "3", "7", "-1", "64", "1023", "65536", "4294967295", "4294967296"),
    *(
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
        "99999999999999999999",
    ),
)
TYPES = (
    *("f16", "bf16", "f32", "f64", "f128", "i1", "i8", "i32", "i64", "ui8", "i128", "index"),
    *("none", "complex<f32>", "vector<4xf32>", "vector<[4]xf32>", "tensor<4xf32>", "tensor<*xf32>"),
    *("memref<4xf32>", "memref<?xf32>", "tensor<?x4xf32>", "!llvm.ptr", "tuple<>", "f8E4M3FN"),
)
ATTRIBUTES = (
    *("[0]", "[]", '["parallel"]', '["reduction"]', "unit", "true", '"text"', "@main", "0 : i64"),
    *("dense<0> : tensor<4xi64>", "array<i64>", "array<i64: 4294967295>", "{}"),
    *(
        "affine_map<()->()>",
        "affine_map<(d0) -> (d0 * 4611686018427387904)>",
        "dense<> : tensor<0xf32>",
        "#llvm.poison",
    ),
)
IMPORTED = {
    "stablehlo": """module {
  func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x3xf32>) -> (tensor<4x3xf32>, tensor<4xf32>) {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT]
      : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
    %1 = stablehlo.tanh %0 : tensor<4x3xf32>
    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [1]
      : (tensor<4x3xf32>, tensor<f32>) -> tensor<4xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<4xf32>) -> tensor<4x3xf32>
    %4 = stablehlo.subtract %1, %3 : tensor<4x3xf32>
    %5 = stablehlo.slice %4 [0:2, 0:3] : (tensor<4x3xf32>) -> tensor<2x3xf32>
    %6 = stablehlo.pad %5, %cst, low = [1, 0], high = [1, 0], interior = [0, 0]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<4x3xf32>
    return %6, %2 : tensor<4x3xf32>, tensor<4xf32>
  }
}
""",
    "tosa": """func.func @main(%a: tensor<2x3x4xf32>, %b: tensor<2x4x5xf32>) -> tensor<2x3x5xf32> {
  %zp = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %0 = tosa.matmul %a, %b, %zp, %zp
    : (tensor<2x3x4xf32>, tensor<2x4x5xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x3x5xf32>
  %1 = tosa.clamp %0 {min_val = 0.0 : f32, max_val = 6.0 : f32}
    : (tensor<2x3x5xf32>) -> tensor<2x3x5xf32>
  %2 = tosa.reduce_max %1 {axis = 1 : i32} : (tensor<2x3x5xf32>) -> tensor<2x1x5xf32>
  %3 = tosa.sub %1, %2 : (tensor<2x3x5xf32>, tensor<2x1x5xf32>) -> tensor<2x3x5xf32>
  return %3 : tensor<2x3x5xf32>
}
""",
    "linalg": """#row = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @main(%x: tensor<5x8xf32>) -> tensor<5xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %r = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<5x8xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.mulf %a, %a : f32
    %t = arith.addf %s, %b : f32
    linalg.yield %t : f32
  } -> tensor<5xf32>
  return %r : tensor<5xf32>
}
""",
}
# Stages that are a whole program, of which a file is made; the others are emitted as code.
EMITS = {"llvm": "asm", "ll": "obj", "nvvm": "ptx"}


@dataclass(frozen=True)
class Seed:
    """A sound text: `stage` is where it starts, None for an imported program."""

    name: str
    stage: str | None
    target: str
    text: str


def write_seeds(path: Path) -> None:
    """Compile the programs and write their texts."""
    rng = np.random.default_rng(0)
    x = nova.tensor(rng.normal(size=(4, 6)).astype("f4"), name="x")
    w = nova.tensor(rng.normal(size=(6, 5)).astype("f4"), requires_grad=True, name="w")
    loss = nova.mean(nova.softmax(nova.gelu(x @ w)) ** 2)
    nova.backward(loss)
    step = nova.compile(loss, inputs=[x], params=[w], include_backward=True)
    i = nova.tensor(np.array([3, 0, 2], "i8"), name="i")
    small = nova.compile(nova.where(i > 1, i * 2, i).sum(), inputs=[i])
    result: list[tuple[str, str | None, str, str]] = []
    for name, program in (("step", step), ("small", small)):
        result.append((f"{name} plan", "plan", "cpu", str(program.plan)))
        for target, stages in (
            ("x86_64-v3", ("nova", "linalg", "kernels", "buffers", "loops", "llvm", "ll")),
            ("cuda:sm_80", ("kernels", "buffers", "device", "outlined", "nvvm", "ptx")),
        ):
            for stage in stages:
                data = nova.translate(program, targets=target, emit=stage).data.decode()
                result.append((f"{name} {stage} {target}", stage, target, data))
    for name, text in IMPORTED.items():
        result += [(name, None, target, text) for target in ("x86_64-v3", "cuda:sm_80")]
    path.write_text(json.dumps(result))


def read_seeds(path: Path) -> list[Seed]:
    return [Seed(*row) for row in json.loads(path.read_text())]


def mutate(seeds: Sequence[Seed], number: int) -> tuple[Seed, str]:
    """The seed and the damaged text of a number."""
    rng = random.Random(number)
    # Imported programs are what strangers give us most: a third of all.
    imported = [seed for seed in seeds if seed.stage is None]
    seed = rng.choice(imported if rng.random() < 0.33 else seeds)
    text = seed.text
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        text = rng.choice(CHANGES)(rng, text, rng.choice(seeds).text)
    return seed, text


Change = Callable[[random.Random, str, str], str]


def _put(text: str, at: re.Match[str], new: str) -> str:
    return text[: at.start()] + new + text[at.end() :]


def _pick(rng: random.Random, pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """A match near a random place: to list all of them takes longer than to compile."""
    for start in (rng.randrange(len(text) + 1), 0):
        if result := pattern.search(text, start):
            return result
    return None


def _change_word(rng: random.Random, text: str, other: str) -> str:
    at = _pick(rng, WORD, text)
    new = _pick(rng, WORD, rng.choice([text, text, other]))
    return _put(text, at, new[0]) if at and new else text


def _drop_word(rng: random.Random, text: str, other: str) -> str:
    at = _pick(rng, WORD, text)
    return _put(text, at, "") if at else text


def _change_number(rng: random.Random, text: str, other: str) -> str:
    at = _pick(rng, rng.choice([NUMBER, SIZED]), text)
    if at is None:
        return text
    nearby = str(int(at[0]) + rng.choice([-1, 1, 2]))
    return _put(text, at, rng.choice([nearby, nearby, rng.choice(NUMBERS)]))


def _number_a_value(rng: random.Random, text: str, other: str) -> str:
    at = _pick(rng, NAME, text)
    return _put(text, at, f"{at[0]}#{rng.choice(NUMBERS)}") if at else text


def _change_name(rng: random.Random, text: str, other: str) -> str:
    at, new = _pick(rng, NAME, text), _pick(rng, NAME, text)
    return _put(text, at, new[0]) if at and new else text


def _change_type(rng: random.Random, text: str, other: str) -> str:
    at = _pick(rng, re.compile(r"\b(?:f16|f32|f64|i1|i8|i32|i64|index)\b"), text)
    return _put(text, at, rng.choice(TYPES)) if at else text


def _change_whole_type(rng: random.Random, text: str, other: str) -> str:
    at = _pick(rng, re.compile(r"(?:tensor|memref|vector)<[^<>]*>"), text)
    return _put(text, at, rng.choice(TYPES)) if at else text


def _change_attribute(rng: random.Random, text: str, other: str) -> str:
    at = _pick(rng, re.compile(r"(?<== )(?:\[[^\]\n]*\]|[\w.#@:]+)"), text)
    return _put(text, at, rng.choice(ATTRIBUTES)) if at else text


def _change_list(rng: random.Random, text: str, other: str) -> str:
    """A list of numbers gets longer, shorter, or another order."""
    at = _pick(rng, re.compile(r"(?<=[\[:] )?(?:-?\d+, )+-?\d+|\[-?\d+\]"), text)
    if at is None:
        return text
    words = [word.strip("[]") for word in at[0].split(", ")]
    mode = rng.randrange(4)
    if mode == 0:
        words.append(rng.choice(NUMBERS))
    elif mode == 1:
        words.pop()
    elif mode == 2:
        rng.shuffle(words)
    else:
        words[rng.randrange(len(words))] = rng.choice(NUMBERS)
    inner = ", ".join(words)
    return _put(text, at, f"[{inner}]" if at[0].startswith("[") else inner)


def _change_lines(rng: random.Random, text: str, other: str) -> str:
    lines, more = text.splitlines(keepends=True), other.splitlines(keepends=True)
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    mode = rng.randrange(4)
    if mode == 0:
        del lines[at]
    elif mode == 1:
        lines.insert(to, lines[at])
    elif mode == 2:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        lines.insert(to, rng.choice(more))
    return "".join(lines)


def _change_character(rng: random.Random, text: str, other: str) -> str:
    at = rng.randrange(len(text))
    new = rng.choice(['"', "<", ">", "{", "}", "(", ")", "\0", "\u20ac", "\\", "%", "x", "0", "-"])
    return text[:at] + new + text[at + rng.choice([0, 1]) :]


def _change_everywhere(rng: random.Random, text: str, other: str) -> str:
    """A size, a number or an element type, wherever it stands: most such texts parse."""
    pattern = rng.choice([SIZED, NUMBER, re.compile(r"(?:f16|f32|f64|i1|i8|i32|i64|index)\b")])
    at = _pick(rng, pattern, text)
    if at is None:
        return text
    new = rng.choice(TYPES[:12]) if pattern not in (SIZED, NUMBER) else _near(rng, at[0])
    return re.sub(rf"{pattern.pattern}", lambda m: new if m[0] == at[0] else m[0], text)


def _near(rng: random.Random, number: str) -> str:
    return str(int(number) + rng.choice([-1, 1, 2, 7])) if rng.random() < 0.8 else "1"


def _change_op(rng: random.Random, text: str, other: str) -> str:
    """An op of the same dialect in the place of another."""
    at = _pick(rng, OP, text)
    if at is None:
        return text
    alike = [m for m in OP.findall(text) if m.split(".")[0] == at[0].split(".")[0]]
    return _put(text, at, rng.choice(alike))


def _exchange_names(rng: random.Random, text: str, other: str) -> str:
    """Two operands of one line in each other's place."""
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    names = list(NAME.finditer(lines[at]))
    if len(names) < 2:
        return text
    first, second = sorted(rng.sample(names, 2), key=lambda m: m.start())
    line = lines[at]
    lines[at] = (
        f"{line[: first.start()]}{second[0]}{line[first.end() : second.start()]}"
        f"{first[0]}{line[second.end() :]}"
    )
    return "".join(lines)


def _drop_attribute(rng: random.Random, text: str, other: str) -> str:
    at = _pick(rng, re.compile(r"[\w.]+ = [^,{}\n]+, |, [\w.]+ = [^,{}\n]+(?=})"), text)
    return _put(text, at, "") if at else text


def _cut(rng: random.Random, text: str, other: str) -> str:
    at = rng.randrange(len(text))
    return text[:at] + text[at + rng.choice([1, 10, 100, 1000, len(text)]) :]


CHANGES: tuple[Change, ...] = (
    *(_change_word, _drop_word, _change_number, _change_list, _number_a_value, _change_name),
    *(_change_type, _change_whole_type, _change_attribute, _change_list, _change_lines),
    *(_change_everywhere, _change_everywhere, _change_op, _change_op, _exchange_names),
    *(_drop_attribute, _drop_attribute, _change_number, _change_character, _cut),
)


def arrays_of(signature: Any, seed: int) -> list[np.ndarray]:
    """Values for the arguments of a program."""
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=spec.shape) * 3).astype(nova.core.dtypes.dtype(spec.dtype).numpy)
        for spec in signature
    ]
