"""PTX text to statements: kernels with their registers, variables and instructions.

Comes in: the text that LLVM's NVPTX back end writes (and what people write by hand in its style).
Goes out: `PtxModule`. `decode.py` turns a kernel's statements into what the simulator executes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nova.errors import PtxError

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(
    r"(?:\.visible\s+|\.weak\s+)?\.entry\s+(?P<name>[\w$.]+)\s*(?:\((?P<params>[^)]*)\))?(?P<rest>[^{]*)\{"
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)(?P<ptr>\s+\.ptr[^,]*?)?\s+(?P<name>[\w$]+)(?:\[(?P<count>\d+)\])?\s*$"
)
_VARIABLE = re.compile(
    r"(?P<linkage>(?:\.visible|\.extern|\.weak)\s+)?\.(?P<space>shared|local|global|const)\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+"
    r"(?P<name>[\w$.]+)\s*(?:\[(?P<count>\d*)\])?\s*(?:=\s*\{?(?P<initial>[^;}]*)\}?)?\s*;"
)
_REGISTERS = re.compile(r"\.reg\s+\.(?P<type>\w+)\s+(?P<name>%?[\w$]+)(?:<(?P<count>\d+)>)?\s*;")
_STATEMENT = re.compile(
    r"\s*(?:@(?P<unless>!)?(?P<guard>%[\w$]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>[^;]*);",
    re.DOTALL,
)
_LABEL = re.compile(r"\s*(?P<label>[\w$]+):(?!:)")
_BYTES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4}
_BYTES |= {"u32": 4, "s32": 4, "f32": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8}
WIDTHS = {"pred": 1, **{name: 8 * count for name, count in _BYTES.items()}}


@dataclass(frozen=True)
class Statement:
    """One instruction: `opcode` with its dots, operands as written."""

    opcode: str
    operands: tuple[str, ...]
    guard: str | None
    unless: bool
    line: int


@dataclass(frozen=True)
class Variable:
    """Memory that a kernel or the module declares; `offset` is its place in its space."""

    name: str
    space: str
    offset: int
    size: int
    align: int
    initial: bytes | None = None


@dataclass
class PtxKernel:
    """An entry point: parameters with their places, registers by name with their widths."""

    name: str
    line: int
    params: dict[str, Variable] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    most_threads: int | None = None
    required: tuple[int, ...] | None = None

    @property
    def param_bytes(self) -> int:
        return max((v.offset + v.size for v in self.params.values()), default=0)

    def space_bytes(self, space: str) -> int:
        """Bytes of the kernel's own variables in a space."""
        own = (v for v in self.variables.values() if v.space == space)
        return max((v.offset + v.size for v in own), default=0)


@dataclass
class PtxModule:
    """All kernels of a text, and the variables that they share."""

    target: str
    kernels: dict[str, PtxKernel] = field(default_factory=dict)
    globals: dict[str, Variable] = field(default_factory=dict)


def parse_ptx(text: str) -> PtxModule:
    """Read a PTX text; what is not understood is a `PtxError` with its line."""
    # Comments become blanks, so that lines stay where they are.
    text = _COMMENTS.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    target = re.search(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
    if target is None:
        raise PtxError("this is no PTX: it has no .target", hint="give the text that LLVM writes")
    if found := re.search(r"\.extern\s+\.func[^;]*?([\w$]+)\s*\(", text):
        raise PtxError(
            f"the PTX calls {found[1]}, which nothing defines", line=_line(text, found.start())
        )
    module = PtxModule(target[1])
    at = 0
    outside: list[str] = []
    while entry := _ENTRY.search(text, at):
        outside.append(text[at : entry.start()])
        end = _closing(text, entry.end())
        kernel = _kernel(text, entry, end)
        module.kernels[kernel.name] = kernel
        at = end + 1
    outside.append(text[at:])
    module.globals = _variables("\n".join(outside), {})
    for kernel in module.kernels.values():
        own = _variables("\n".join(outside), {}, shared=True)
        start = kernel.space_bytes("shared")
        for name, variable in own.items():  # shared memory outside of kernels, dynamic too
            offset = _up(start, max(variable.align, 1))
            kernel.variables[name] = Variable(name, "shared", offset, variable.size, variable.align)
            start = offset + variable.size
    return module


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _closing(text: str, at: int) -> int:
    """The place of the brace that closes a kernel; operands have braces of their own."""
    depth = 1
    for brace in re.finditer(r"[{}]", text[at:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return at + brace.start()
    raise PtxError("a kernel without an end", line=_line(text, at))


def _kernel(text: str, entry: re.Match[str], end: int) -> PtxKernel:
    kernel = PtxKernel(entry["name"], _line(text, entry.start()))
    offset = 0
    for part in filter(str.strip, (entry["params"] or "").split(",")):
        param = _PARAM.match(part.strip())
        if param is None:
            raise PtxError(f"a parameter of {kernel.name}: {part.strip()}", line=kernel.line)
        size = _BYTES[param["type"]] * int(param["count"] or 1)
        offset = _up(offset, int(param["align"] or _BYTES[param["type"]]))
        kernel.params[param["name"]] = Variable(param["name"], "param", offset, size, 1)
        offset += size
    if bound := re.search(r"\.(maxntid|reqntid)\s+([\d,\s]+)", entry["rest"]):
        sizes = [int(n) for n in bound[2].replace(",", " ").split()]
        kernel.most_threads = 1
        for size in sizes:
            kernel.most_threads *= size
        if bound[1] == "reqntid":
            kernel.required = (*sizes, *([1] * (3 - len(sizes))))
    body = text[entry.end() : end]
    first = _line(text, entry.end())
    for found in _REGISTERS.finditer(body):
        width = WIDTHS.get(found["type"])
        if width is None:
            raise PtxError(
                f"registers of type {found['type']}",
                line=first + body.count("\n", 0, found.start()),
            )
        width = max(width, 16) if width > 1 else 1
        if found["count"]:
            kernel.registers |= {f"{found['name']}{i}": width for i in range(int(found["count"]))}
        else:
            kernel.registers[found["name"]] = width
    kernel.variables = _variables(body, {}, shared=True, local=True)
    for pattern in (_REGISTERS, _VARIABLE):
        body = pattern.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), body)
    _statements(kernel, body, first)
    return kernel


def _variables(
    text: str, known: dict[str, Variable], *, shared: bool = False, local: bool = False
) -> dict[str, Variable]:
    wanted = {"shared": shared, "local": local, "global": not shared, "const": not shared}
    places = {"shared": 0, "local": 0, "global": 0, "const": 0}
    for found in _VARIABLE.finditer(text):
        if not wanted[found["space"]]:
            continue
        space, one = found["space"], _BYTES[found["type"]]
        size = one * (int(found["count"]) if found["count"] else 0 if "[" in found[0] else 1)
        align = int(found["align"] or one)
        offset = _up(places[space], align)
        places[space] = offset + size
        initial = None
        if found["initial"] and found["initial"].strip():
            values = [int(v, 0) for v in found["initial"].replace("{", "").split(",")]
            initial = b"".join((v % (1 << 8 * one)).to_bytes(one, "little") for v in values).ljust(
                size, b"\0"
            )
        known[found["name"]] = Variable(found["name"], space, offset, size, align, initial)
    return known


def _statements(kernel: PtxKernel, body: str, first: int) -> None:
    at = 0
    while body[at:].strip():
        skipped = re.match(r"[\s{}]*(?:\.(?:loc|pragma|file)\b[^\n]*\n?)?", body[at:])
        at += skipped.end() if skipped else 0
        if label := _LABEL.match(body, at):
            kernel.labels[label["label"]] = len(kernel.statements)
            at = label.end()
            continue
        statement = _STATEMENT.match(body, at)
        start = at + len(body[at:]) - len(body[at:].lstrip())
        line = first + body.count("\n", 0, start)
        if statement is None:
            if not body[at:].strip():
                return
            raise PtxError(f"not an instruction: {body[at:].strip().splitlines()[0]}", line=line)
        operands = tuple(_split(statement["operands"]))
        kernel.statements.append(
            Statement(
                statement["opcode"], operands, statement["guard"], bool(statement["unless"]), line
            )
        )
        at = statement.end()


def _split(text: str) -> list[str]:
    """Operands at their commas, but for those in braces and brackets."""
    parts, depth, last = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "{[") - (sign in "}]")
        if sign == "," and depth == 0:
            parts.append(text[last:at].strip())
            last = at + 1
    parts.append(text[last:].strip())
    return [p for p in parts if p]
