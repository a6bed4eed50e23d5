"""The text form of a plan, and its parser. `parse_plan(print_plan(p)) == p`.

    plan {
      input X: f32[8,16]
      param W: f32[16,10]
      slot[0] = matmul(input[0], param[0]) : f32[8,10]    # model.py:7
      slot[1] = sum(slot[0]) {axis=(0,1), keepdims=false} : f32[]
      update param[0] = slot[1]
      return slot[1]
    }

A step with regions has the types of its results in parentheses and a plan for each region:

      slot[2] = scan(input[0], param[0]) {carries=1, consts=0, length=8, reverse=false} : (f32[4]) {
        plan {
          input x0: i64[]
          ...
        }
      }
      slot[3] = result(slot[2]) {index=0} : f32[4]

A literal is `f32[]<1.5>`, or `f32[2,3]<x0000803f...>` with the little-endian bytes in hexadecimal;
`f32[2,3]<*1.5>` is a splat. A step with `@cpu` before its type is pinned to the host. A trailing
comment is the user's line. A symbolic size is declared by a line `dim B=1..4096` before the inputs;
it is an expression in types (`f32[B*2,16]`), and `<B*2>` in attributes. Names and files with
characters that would not parse back are written as JSON strings.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nova.core.constants import LEAST, Constants
from nova.core.dtypes import EVERY, DType, TensorType, bool_, constant, dtype
from nova.core.location import Location
from nova.core.signature import Argument, Signature
from nova.core.sizes import Dim, SizeExpr, parse_size
from nova.core.sizes.text import parse_dim, parse_shape, print_dim
from nova.errors import NovaError, PlanSyntaxError
from nova.ops.loops.control import CALL, REGION_OPS, check_call, control_types, is_op
from nova.plan.plan import Arg, Input, Literal, Param, Plan, Slot, Step

_PLAIN_NAME = re.compile(r'[^\s:()\[\]{}<>,#"][^\s:()\[\]{}<>,#]*')
_STRING = r'"(?:[^"\\]|\\.)*"'
_TYPE = r"\w+\[[^\[\]<>]*\]"
_ARGUMENT = re.compile(rf"(input|param) ({_STRING}|{_PLAIN_NAME.pattern}): ({_TYPE})$")
_STEP = re.compile(
    rf"slot\[(\d+)\] = (\w+)\((.*?)\)(?: \{{(.*)\}})?(?: @(\w+))? : ({_TYPE})(?: +# (.*):(\d+))?$",
    re.ASCII,
)
_REGION_STEP = re.compile(
    r"slot\[(\d+)\] = (\w+)\((.*?)\)(?: \{(.*)\})?(?: @(\w+))? : \(([^)]*)\) \{"
    r"(?: +# (.*):(\d+))?$",
    re.ASCII,
)
_UPDATE = re.compile(r"update param\[(\d+)\] = (.+)$")
_ARG = re.compile(rf"(?:(input|param|slot)\[(\d+)\]|({_TYPE})<([^>]*)>)(?:, |$)", re.ASCII)
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ATTR = re.compile(rf"(\w+)=(\((?:<[^>]*>|[^)<])*\)|{_QUOTED}|<[^>]*>|[^,]+)(?:, |$)")
_SIZE = re.compile(r"<([^>]*)>")
_PLAIN_SIZES = re.compile(r"[0-9,]*")
_SIZE_MARK = "\0"  # before the text of a size, among the literals of an attribute

_DTYPES = {d.name for d in EVERY}
_SPECIAL_FLOATS = {"inf", "-inf", "nan"}
_MOST_LINES = (1 << 31) - 1  # the largest line number of an MLIR location
_MOST_DIGITS = 20  # of an index or a size


# --- printing -------------------------------------------------------------------------------------


def print_plan(plan: Plan, *, locations: bool = True, constants: Constants | None = None) -> str:
    """The plan as text; without `locations` it is the form that cache keys hash.

    With a table of `constants`, large literals are moved there, and the text has their digests.
    """
    dims = [f"  dim {print_dim(d)}" for d in plan.dims]
    return _print_plan(plan, dims, locations, constants)


def _print_plan(plan: Plan, dims: list[str], locations: bool, keep: Constants | None) -> str:
    """The text of a program, or of a region, which has the dims of the program."""
    lines = ["plan {", *dims]
    lines += [f"  input {_print_name(a.name)}: {a.type}" for a in plan.signature.inputs]
    lines += [f"  param {_print_name(a.name)}: {a.type}" for a in plan.signature.params]
    for step in plan.steps:
        lines.append("  " + _print_step(step, locations, keep))
        if step.results:
            for region in step.regions:
                text = _print_plan(region, [], locations, keep)
                lines += [f"    {line}" for line in text.splitlines()]
            lines.append("  }")
    lines += [f"  update param[{i}] = {_print_arg(v, keep)}" for i, v in plan.updates]
    lines.append(f"  return {', '.join(_print_arg(r, keep) for r in plan.results)}")
    return "\n".join([*lines, "}"]) + "\n"


def _print_step(step: Step, locations: bool, keep: Constants | None) -> str:
    args = ", ".join(_print_arg(a, keep) for a in step.args)
    attrs = ", ".join(f"{k}={_print_attr(v)}" for k, v in sorted(step.attrs.items()))
    text = f"slot[{step.out_slot}] = {step.op}({args})"
    text += f" {{{attrs}}}" if attrs else ""
    types = f"({', '.join(map(str, step.results))}) {{" if step.results else f"{step.out_type}"
    text += (f" @{step.device}" if step.device else "") + f" : {types}"
    return text + (_print_location(step.location) if locations and step.location else "")


def _print_name(name: str) -> str:
    plain = _PLAIN_NAME.fullmatch(name) and name.isprintable()
    return name if plain else json.dumps(name)


def _print_location(location: Location) -> str:
    file = location.file
    plain = file.isprintable() and not file.startswith('"')
    return f"    # {file if plain else json.dumps(file)}:{location.line}"


def _print_arg(arg: Arg, keep: Constants | None) -> str:
    if not isinstance(arg, Literal):
        return str(arg)
    array = np.ascontiguousarray(arg.array)
    data = array.reshape(-1).view(np.uint8).data
    # The text of a complex number loses the signs of zeros: it is bytes.
    is_plain = not arg.type.dtype.is_complex
    if is_plain and (arg.type.rank == 0 or _is_splat(data, array.itemsize)):
        item = array.reshape(-1)[0]
        number = float(item) if arg.type.dtype.is_float else item.item()
        # Only numbers whose text parses to the same bits; the rest (NaN payloads) are bytes.
        back = np.asarray(number).astype(arg.type.dtype.numpy)
        if back.tobytes() == item.tobytes() and np.isfinite(number):
            return f"{arg.type}<{'*' if arg.type.rank else ''}{number!r}>"
    if keep is not None and data.nbytes >= LEAST:
        return f"{arg.type}<@{keep.add(data, arg.digest)}>"
    return f"{arg.type}<x{data.hex()}>"


def _is_splat(data: memoryview, size: int) -> bool:
    """Whether all elements, of `size` bytes each, are equal."""
    # Large constants are seldom splats; comparing the last element detects that early.
    if not data or data[:size] != data[-size:]:
        return False
    words = np.frombuffer(data, f"u{size}")
    return bool((words == words[0]).all())


def _print_attr(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DType):
        return value.name
    if value is None:
        return "none"
    if isinstance(value, SizeExpr):
        return f"<{value}>"
    if isinstance(value, tuple):
        return f"({','.join(_print_attr(v) for v in value)})"
    return repr(value)


# --- parsing --------------------------------------------------------------------------------------


def parse_plan(text: str, filename: str = "<plan>") -> Plan:
    """Parse a plan; PlanSyntaxError with file:line if `text` does not parse."""
    parser = _Parser(filename)
    for number, line in enumerate(text.splitlines(), 1):
        parser.line(number, line)
    return parser.finish()


class _Parser:
    def __init__(self, filename: str, dims: Mapping[str, Dim] | None = None):
        self.filename = filename
        self.number = 0
        self.state = "before"
        self.dims: dict[str, Dim] = dict(dims or {})
        self.inputs: list[Argument] = []
        self.params: list[Argument] = []
        self.steps: list[Step] = []
        self.updates: list[tuple[int, Arg]] = []
        self.results: tuple[Arg, ...] = ()
        # Of a step with regions that is open: its parts, its plans, and the one that is read.
        self.open: tuple[Step, int] | None = None
        self.plans: list[Plan] = []
        self.region: _Parser | None = None

    def error(self, message: str, hint: str | None = None) -> PlanSyntaxError:
        return PlanSyntaxError(message, where=f"{self.filename}:{self.number}", hint=hint)

    def line(self, number: int, line: str) -> None:
        self.number = number
        text = line.strip()
        if not text or text.startswith("#"):
            return
        if self.open is not None:
            self._region_line(number, line)
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
        if text.startswith("dim ") and not self.inputs and not self.params and not self.steps:
            self._dim(text[4:])
        elif match := _ARGUMENT.match(text):
            target = self.inputs if match[1] == "input" else self.params
            target.append(Argument(self._string(match[2]), self._type(match[3]), match[1]))
        elif match := _STEP.match(text):
            self.steps.append(self._step(match))
        elif match := _REGION_STEP.match(text):
            self.open = self._step(match), self.number
        elif match := _UPDATE.match(text):
            self._update(self._number(match[1]), self._args(match[2]))
        elif text == "return" or text.startswith("return "):
            self.results = self._args(text[7:])
            self.state = "done"
        else:
            raise self.error(
                f"cannot read {text!r}",
                "a line is a dim, an input, a param, a slot, an update or return",
            )

    def _dim(self, text: str) -> None:
        try:
            dim = parse_dim(text)
        except NovaError as error:
            raise self.error(error.what, error.hint) from None
        if dim.name in self.dims:
            raise self.error(f"dim {dim.name} is declared twice")
        self.dims[dim.name] = dim

    def _update(self, index: int, values: tuple[Arg, ...]) -> None:
        if index >= len(self.params):
            raise self.error(f"param[{index}] does not exist")
        if index in (i for i, _ in self.updates):
            raise self.error(f"param[{index}] is updated twice")
        if len(values) != 1:
            raise self.error(f"param[{index}] has one new value, not {len(values)}")
        new, old = self._plan().type_of(values[0]), self.params[index].type
        if new != old:
            raise self.error(f"param[{index}] is {old}, its new value {new}")
        self.updates.append((index, values[0]))

    def _region_line(self, number: int, line: str) -> None:
        """A line inside of a step with regions: of one of its plans, or its end."""
        text = line.strip()
        if self.region is None and text == "}":
            self._close_step()
            return
        if self.region is None:
            self.region = _Parser(self.filename, self.dims)
        self.region.line(number, line)
        if self.region.state == "closed":
            self.plans.append(self.region.finish())
            self.region = None

    def _close_step(self) -> None:
        assert self.open is not None
        step, opened = self.open
        operands = tuple(map(self._plan().type_of, step.args))
        regions = [
            (tuple(a.type for a in p.signature.inputs), tuple(map(p.type_of, p.results)))
            for p in self.plans
        ]
        try:
            if step.op == CALL.name:
                check_call(operands, step.attrs, regions)
                expected = step.results
            else:
                expected = control_types(step.op, operands, step.attrs, regions)
            if expected != step.results:
                types = ", ".join(map(str, expected))
                raise NovaError(f"its results are ({types})")
        except NovaError as error:
            self.number = opened
            raise self.error(f"{step.op}: {error.what}", error.hint) from None
        self.steps.append(replace(step, regions=tuple(self.plans)))
        self.open, self.plans = None, []

    def _step(self, match: re.Match[str]) -> Step:
        slot, name, args, attrs, device, type_, file, line = match.groups()
        index = self._number(slot)
        if index != len(self.steps):
            raise self.error(f"slot[{slot}] out of order: expected slot[{len(self.steps)}]")
        if not is_op(name):
            raise self.error(f"there is no op {name!r}")
        if device not in (None, "cpu"):
            raise self.error(f"there is no device {device!r}", "a step is @cpu, or has no device")
        location = Location(self._string(file), self._number(line)) if file else None
        if location is not None and location.line > _MOST_LINES:
            raise self.error(f"there is no line {line} in a file")
        operands = self._args(args)
        if match.re is _STEP:
            types = [self._type(type_)]
        else:
            types = [self._type(text) for text in re.findall(_TYPE, type_)]
            if not types or name not in REGION_OPS:
                raise self.error(f"{name!r} has no regions, or no results")
        results = tuple(types) if match.re is _REGION_STEP else ()
        out, device = types[0], device or ""
        return Step(
            name, operands, self._attrs(attrs), out, index, location, device, results=results
        )

    def _number(self, text: str) -> int:
        if len(text) > _MOST_DIGITS:
            raise self.error(f"the number {text[:_MOST_DIGITS]}... is too large")
        return int(text)

    def _string(self, text: str) -> str:
        if not text.startswith('"'):
            return text
        try:
            return str(json.loads(text))
        except ValueError as error:
            raise self.error(f"cannot read the string {text}: {error}") from None

    def _args(self, text: str) -> tuple[Arg, ...]:
        args: list[Arg] = []
        position = 0
        while position < len(text):
            match = _ARG.match(text, position)
            if not match:
                raise self.error(f"cannot read the argument {text[position:]!r}")
            role, index, type_, value = match.groups()
            reference = self._reference(role, self._number(index)) if role else None
            args.append(reference or self._literal(type_, value))
            position = match.end()
        return tuple(args)

    def _reference(self, role: str, index: int) -> Arg:
        declared = {"input": self.inputs, "param": self.params, "slot": self.steps}[role]
        if index >= len(declared):  # type: ignore[arg-type]
            raise self.error(f"{role}[{index}] does not exist (yet)")
        classes: dict[str, type[Input | Param | Slot]] = {
            "input": Input,
            "param": Param,
            "slot": Slot,
        }
        return classes[role](index)

    def _literal(self, type_text: str, value: str) -> Literal:
        type_ = self._type(type_text)
        try:
            if value.startswith("x"):
                array = np.frombuffer(bytes.fromhex(value[1:]), type_.dtype.numpy)
                array = array.reshape(type_.shape)
                if type_.dtype is bool_:
                    array = array.view(np.uint8) != 0  # a byte other than 0 and 1 is not a bool
            else:
                number = ast.literal_eval(value.removeprefix("*"))
                if type(number) not in (bool, int, float):
                    raise ValueError(f"{number!r} is not a number")
                array = np.full(type_.shape, constant(number, type_.dtype))
        except NovaError as error:
            raise self.error(f"bad literal {type_text}: {error.what}", error.hint) from None
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise self.error(f"bad literal {type_text}: {error}") from None
        return Literal(array, type_)

    def _type(self, text: str) -> TensorType:
        name, shape = text.rstrip("]").split("[")
        try:
            if _PLAIN_SIZES.fullmatch(shape):
                sizes: tuple[Any, ...] = tuple(self._number(n) for n in shape.split(",") if n)
            else:
                sizes = parse_shape(shape, self.dims)
            return TensorType(sizes, dtype(name))
        except NovaError as error:
            raise self.error(error.what, error.hint) from None

    def _attrs(self, text: str | None) -> dict[str, Any]:
        if not text:
            return {}
        words = {"true": "True", "false": "False", "none": "None"}
        attrs: dict[str, Any] = {}
        position = 0
        while position < len(text):
            match = _ATTR.match(text, position)
            if not match:
                raise self.error(f"cannot read the attribute {text[position:]!r}")
            name, value = match.groups()
            position = match.end()
            if name in attrs:
                raise self.error(f"the attribute {name} is given twice")
            if value in _DTYPES or value in _SPECIAL_FLOATS:
                attrs[name] = dtype(value) if value in _DTYPES else float(value)
                continue
            is_text = value.startswith(("'", '"'))
            if not is_text:
                value = re.sub(r"\b(true|false|none)\b", lambda m: words[m[0]], value)
            if value.startswith("(") and value != "()":
                value = value[:-1].rstrip(",") + ",)"
            if not is_text:
                value = _SIZE.sub(lambda m: repr(_SIZE_MARK + m[1]), value)
            try:
                attrs[name] = self._with_sizes(ast.literal_eval(value))
            except NovaError as error:
                raise self.error(f"bad attribute {name}: {error.what}", error.hint) from None
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                raise self.error(f"bad attribute {name}={value[:200]}") from None
        return attrs

    def _with_sizes(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._with_sizes, value))
        is_size = isinstance(value, str) and value.startswith(_SIZE_MARK)
        return parse_size(value[1:], self.dims) if is_size else value

    def finish(self) -> Plan:
        if self.state != "closed" or self.open is not None:
            self.number += 1
            raise self.error("the plan ends too early")
        return self._plan()

    def _plan(self) -> Plan:
        signature = Signature(tuple(self.inputs), tuple(self.params))
        return Plan(signature, tuple(self.steps), self.results, tuple(self.updates))
