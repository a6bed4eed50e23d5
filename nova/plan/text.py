"""The text form of a plan, and its parser. `parse_plan(print_plan(p)) == p`.

    plan {
      input X: f32[8,16]
      param W: f32[16,10]
      slot[0] = matmul(input[0], param[0]) : f32[8,10]    # model.py:7
      slot[1] = sum(slot[0]) {axis=(0,1), keepdims=false} : f32[]
      update param[0] = slot[1]
      return slot[1]
    }

A literal is `f32[]<1.5>`, or `f32[2,3]<x0000803f...>` with the little-endian bytes in hexadecimal;
`f32[2,3]<*1.5>` is a splat. A trailing comment is the user's line.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

from nova.dtypes import ALL, DType, TensorType, dtype
from nova.errors import NovaError, PlanSyntaxError
from nova.graph.location import Location
from nova.ops import OPS
from nova.plan.plan import Arg, Argument, Input, Literal, Param, Plan, Signature, Slot, Step

_NAME = r"[^\s:()\[\]{}<>,#]+"
_TYPE = r"\w+\[[\d,]*\]"
_ARGUMENT = re.compile(rf"(input|param) ({_NAME}): ({_TYPE})$")
_STEP = re.compile(
    rf"slot\[(\d+)\] = (\w+)\((.*?)\)(?: \{{(.*)\}})? : ({_TYPE})(?: +# (.*):(\d+))?$"
)
_UPDATE = re.compile(r"update param\[(\d+)\] = (.+)$")
_ARG = re.compile(rf"(?:(input|param|slot)\[(\d+)\]|({_TYPE})<([^>]*)>)(?:, |$)")

_DTYPES = {d.name for d in ALL}
_SPECIAL_FLOATS = {"inf", "-inf", "nan"}


# --- printing -------------------------------------------------------------------------------------


def print_plan(plan: Plan, *, locations: bool = True) -> str:
    """The plan as text; without `locations` it is the form that cache keys are made from."""
    lines = ["plan {"]
    lines += [f"  input {a.name}: {a.type}" for a in plan.signature.inputs]
    lines += [f"  param {a.name}: {a.type}" for a in plan.signature.params]
    for step in plan.steps:
        lines.append("  " + _print_step(step, locations))
    lines += [f"  update param[{i}] = {_print_arg(v)}" for i, v in plan.updates]
    lines.append(f"  return {', '.join(_print_arg(r) for r in plan.results)}")
    return "\n".join([*lines, "}"]) + "\n"


def _print_step(step: Step, locations: bool) -> str:
    args = ", ".join(_print_arg(a) for a in step.args)
    attrs = ", ".join(f"{k}={_print_attr(v)}" for k, v in sorted(step.attrs.items()))
    text = f"slot[{step.out_slot}] = {step.op}({args})"
    text += (f" {{{attrs}}}" if attrs else "") + f" : {step.out_type}"
    return text + (f"    # {step.location}" if locations and step.location else "")


def _print_arg(arg: Arg) -> str:
    if not isinstance(arg, Literal):
        return str(arg)
    array = np.ascontiguousarray(arg.array)
    splat = array.size and array.tobytes() == array.reshape(-1)[:1].tobytes() * array.size
    if arg.type.rank == 0 or splat:
        item = array.reshape(-1)[0]
        number = item.item() if arg.type.dtype.name != "bf16" else float(item)
        # Only numbers whose text gives the same bits back; the rest (NaN payloads) go as bytes.
        back = np.asarray(number).astype(arg.type.dtype.numpy)
        if back.tobytes() == item.tobytes() and np.isfinite(number):
            return f"{arg.type}<{'*' if arg.type.rank else ''}{number!r}>"
    return f"{arg.type}<x{array.tobytes().hex()}>"


def _print_attr(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DType):
        return value.name
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"({','.join(_print_attr(v) for v in value)})"
    return repr(value)


# --- parsing --------------------------------------------------------------------------------------


def parse_plan(text: str, filename: str = "<plan>") -> Plan:
    """The plan that `text` says; PlanSyntaxError with file:line where it does not parse."""
    parser = _Parser(filename)
    for number, line in enumerate(text.splitlines(), 1):
        parser.line(number, line)
    return parser.finish()


class _Parser:
    def __init__(self, filename: str):
        self.filename = filename
        self.number = 0
        self.state = "before"
        self.inputs: list[Argument] = []
        self.params: list[Argument] = []
        self.steps: list[Step] = []
        self.updates: list[tuple[int, Arg]] = []
        self.results: tuple[Arg, ...] = ()

    def error(self, what: str, hint: str | None = None) -> PlanSyntaxError:
        return PlanSyntaxError(what, where=f"{self.filename}:{self.number}", hint=hint)

    def line(self, number: int, line: str) -> None:
        self.number = number
        text = line.strip()
        if not text or text.startswith("#"):
            return
        if self.state == "before":
            if text != "plan {":
                raise self.error(f"expected 'plan {{', found {text!r}")
            self.state = "body"
        elif self.state == "done":
            if text != "}":
                raise self.error(f"expected '}}' after return, found {text!r}")
            self.state = "closed"
        elif self.state == "closed":
            raise self.error(f"text after the end of the plan: {text!r}")
        else:
            self._body(text)

    def _body(self, text: str) -> None:
        if match := _ARGUMENT.match(text):
            target = self.inputs if match[1] == "input" else self.params
            target.append(Argument(match[2], self._type(match[3])))
        elif match := _STEP.match(text):
            self._step(match)
        elif match := _UPDATE.match(text):
            index = int(match[1])
            if index >= len(self.params):
                raise self.error(f"param[{index}] does not exist")
            self.updates.append((index, self._args(match[2])[0]))
        elif text == "return" or text.startswith("return "):
            self.results = self._args(text[7:])
            self.state = "done"
        else:
            raise self.error(
                f"cannot read {text!r}", "a line is an input, a param, a slot, an update or return"
            )

    def _step(self, match: re.Match[str]) -> None:
        slot, name, args, attrs, type_, file, line = match.groups()
        if int(slot) != len(self.steps):
            raise self.error(f"slot[{slot}] out of order: expected slot[{len(self.steps)}]")
        if name not in OPS:
            raise self.error(f"there is no op {name!r}")
        location = Location(file, int(line)) if file else None
        self.steps.append(
            Step(name, self._args(args), self._attrs(attrs), self._type(type_), int(slot), location)
        )

    def _args(self, text: str) -> tuple[Arg, ...]:
        args: list[Arg] = []
        position = 0
        while position < len(text):
            match = _ARG.match(text, position)
            if not match:
                raise self.error(f"cannot read the argument {text[position:]!r}")
            kind, index, type_, value = match.groups()
            args.append(self._reference(kind, int(index)) if kind else self._literal(type_, value))
            position = match.end()
        return tuple(args)

    def _reference(self, kind: str, index: int) -> Arg:
        known = {"input": self.inputs, "param": self.params, "slot": self.steps}[kind]
        if index >= len(known):  # type: ignore[arg-type]
            raise self.error(f"{kind}[{index}] does not exist (yet)")
        kinds: dict[str, type[Input | Param | Slot]] = {
            "input": Input,
            "param": Param,
            "slot": Slot,
        }
        return kinds[kind](index)

    def _literal(self, type_text: str, value: str) -> Literal:
        type_ = self._type(type_text)
        try:
            if value.startswith("x"):
                array = np.frombuffer(bytes.fromhex(value[1:]), type_.dtype.numpy)
                array = array.reshape(type_.shape)
            else:
                number = ast.literal_eval(value.removeprefix("*"))
                array = np.full(type_.shape, number).astype(type_.dtype.numpy)
        except (ValueError, SyntaxError) as error:
            raise self.error(f"bad literal {type_text}<{value}>: {error}") from None
        return Literal(array, type_)

    def _type(self, text: str) -> TensorType:
        name, shape = text.rstrip("]").split("[")
        try:
            return TensorType(tuple(int(n) for n in shape.split(",") if n), dtype(name))
        except NovaError as error:
            raise self.error(error.what, error.hint) from None

    def _attrs(self, text: str | None) -> dict[str, Any]:
        if not text:
            return {}
        words = {"true": "True", "false": "False", "none": "None"}
        attrs: dict[str, Any] = {}
        for item in re.findall(r"(\w+)=(\([^)]*\)|'[^']*'|[^,]+)(?:, |$)", text):
            name, value = item
            if value in _DTYPES or value in _SPECIAL_FLOATS:
                attrs[name] = dtype(value) if value in _DTYPES else float(value)
                continue
            if not value.startswith("'"):
                value = re.sub(r"\b(true|false|none)\b", lambda m: words[m[0]], value)
            if value.startswith("(") and value != "()":
                value = value[:-1].rstrip(",") + ",)"
            try:
                attrs[name] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                raise self.error(f"bad attribute {name}={value}") from None
        return attrs

    def finish(self) -> Plan:
        if self.state != "closed":
            self.number += 1
            raise self.error("the plan ends too early")
        signature = Signature(tuple(self.inputs), tuple(self.params))
        return Plan(signature, tuple(self.steps), self.results, tuple(self.updates))
