"""Parses PTX text to statements: kernels with their registers, variables and instructions.

In: the output of LLVM's NVPTX back end (or hand-written PTX in its style). Out: `PtxModule`.
`decode.py` decodes the statements of a kernel to records for the simulator.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nova.core.rounding import round_up
from nova.errors import PtxError
from nova.gpusim.ptx_variables import BYTES, Variable, check_align, place_variable

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEAD = re.compile(r"\.(?:version|target|address_size)\b[^\n]*|\.file\b[^\n]*")
_ENTRY = re.compile(
    r"(?:\.(?:visible|weak)\s+)?\.entry\s+(?P<name>[\w$]+)\s*"
    r"(?:\((?P<params>[^)]*)\))?(?P<rest>[^{]*)\{"
)
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)(?P<ptr>\s+\.ptr[^,]*?)?"
    r"\s+(?P<name>[\w$]+)(?:\[(?P<count>\d+)\])?\s*$"
)
_BOUND = re.compile(
    r"\.(maxntid|reqntid|minnctapersm|maxnreg|noreturn|reqnctapercluster|explicitcluster"
    r"|maxclusterrank)\b\s*([\d,\s]*)"
)
_ITEM = re.compile(
    r"\s*(?:(?P<open>\{)|(?P<close>\})|(?P<label>[\w$]+)\s*:(?!:)|(?P<debug>\.(?:loc|file)\b[^\n]*)"
    r"|(?P<directive>\.[^;]*);|(?P<instruction>[@a-z][^;]*);)"
)
_REGISTERS = re.compile(r"\.reg\s+\.(?P<type>\w+)\s+(?P<names>.+)", re.DOTALL)
_INSTRUCTION = re.compile(
    r"(?:@(?P<unless>!)?\s*(?P<guard>[%\w$]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>.*)",
    re.DOTALL,
)
_OPERAND = re.compile(r"(?:\{[^}]*\}|\[[^\]]*\]|[^,{\[])+")
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*")
# Text that every assembler refuses: non-ASCII characters, and numbers of more than 64 bits.
_STRANGE = re.compile(r"[^\x00-\x7f]|(?<![\w$])(?:0[xX][0-9a-fA-F]{17,}|\d{21,})")
# Every CUDA device of today has these limits.
MAX_BLOCK_THREADS = 1024
MAX_CLUSTER_BLOCKS = 16
_FILE_REGISTERS = 1 << 16
_MOST_THREAD_REGISTERS = 256
_MOST_REGISTERS = 1 << 20
_MOST_PARAM_BYTES = 1 << 16
WIDTHS = {"pred": 1, **{name: max(16, 8 * count) for name, count in BYTES.items()}}


@dataclass(frozen=True)
class Statement:
    """One instruction: `opcode` with its modifiers, operands as written."""

    opcode: str
    operands: tuple[str, ...]
    guard: str | None
    unless: bool
    line: int


@dataclass
class PtxKernel:
    """An entry point: parameters with their offsets, registers by name with their widths."""

    name: str
    line: int
    params: dict[str, Variable] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    most_threads: int | None = None
    required: tuple[int, ...] | None = None
    cluster: tuple[int, ...] | None = None
    max_registers: int | None = None
    min_blocks: int = 1

    @property
    def thread_registers(self) -> int:
        """Registers of a thread at the launch, by the bounds of the kernel; 0 without any."""
        if self.max_registers is not None:
            return self.max_registers
        if self.most_threads is None:
            return 0
        registers = _FILE_REGISTERS // (self.most_threads * self.min_blocks) // 8 * 8
        return min(registers, _MOST_THREAD_REGISTERS)

    @property
    def param_bytes(self) -> int:
        return max((v.offset + v.size for v in self.params.values()), default=0)

    def space_bytes(self, space: str) -> int:
        """Bytes of the kernel's variables in a space; dynamic shared memory begins after them."""
        variables = (v for v in self.variables.values() if v.space == space)
        return max((v.offset + v.size for v in variables), default=0)


@dataclass
class PtxModule:
    """All kernels of a text, and the variables that they share."""

    target: str
    lines: list[str]
    kernels: dict[str, PtxKernel] = field(default_factory=dict)
    globals: dict[str, Variable] = field(default_factory=dict)


def parse_ptx(text: str) -> PtxModule:
    """Parse a PTX text; PtxError with the line for unknown constructs."""
    lines = text.splitlines()
    # Comments become blanks, so that line numbers stay the same.
    text = _COMMENTS.sub(_blank, text)
    target = re.search(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
    if target is None:
        raise PtxError("this is not PTX: it has no .target", hint="give the text that LLVM writes")
    if match := _STRANGE.search(re.sub(r"\.file\b[^\n]*", _blank, text)):
        line = text.count("\n", 0, match.start()) + 1
        raise PtxError(f"not understood: {match[0][:40]!r}", line=line)
    if match := re.search(r"\.extern\s+\.func[^;]*?([\w$]+)\s*\(", text):
        line = text.count("\n", 0, match.start()) + 1
        raise PtxError(f"the PTX calls {match[1]}, which nothing defines", line=line)
    module = PtxModule(target[1], lines)
    shared: dict[str, Variable] = {}
    reader = _Reader(text)
    at = 0
    while entry := _ENTRY.search(text, at):
        _read_outside(reader, at, entry.start(), module.globals, shared)
        kernel, at = reader.kernel(entry)
        module.kernels[kernel.name] = kernel
    _read_outside(reader, at, len(text), module.globals, shared)
    for kernel in module.kernels.values():
        _place_shared(kernel, shared)
    return module


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _read_outside(
    reader: _Reader,
    start: int,
    end: int,
    variables: dict[str, Variable],
    shared: dict[str, Variable],
) -> None:
    """Variables between the kernels; nothing else is allowed there."""
    text = _HEAD.sub(_blank, reader.text[start:end])
    for match in re.finditer(r"\s*(?P<part>[^;\s][^;]*)(?P<end>;?)", text):
        line = reader.line(start + match.start("part"))
        variable = place_variable(match["part"], {**variables, **shared}) if match["end"] else None
        if variable is None or variable.space == "local":
            raise PtxError(f"not understood: {match['part'].split(chr(10))[0].strip()}", line=line)
        (shared if variable.space == "shared" else variables)[variable.name] = variable


def _place_shared(kernel: PtxKernel, shared: dict[str, Variable]) -> None:
    """Shared memory of the module that the kernel uses; arrays without a size come last."""
    used = set()
    for statement in kernel.statements:
        for operand in statement.operands:
            used |= shared.keys() & set(_NAME.findall(operand))
    sized = [shared[name] for name in shared if name in used and shared[name].size]
    open_ended = [shared[name] for name in shared if name in used and not shared[name].size]
    end = kernel.space_bytes("shared")
    for variable in sized:
        offset = round_up(end, variable.align)
        kernel.variables[variable.name] = replace(variable, offset=offset)
        end = offset + variable.size
    end = round_up(end, max((v.align for v in open_ended), default=1))
    for variable in open_ended:
        kernel.variables[variable.name] = replace(variable, offset=end)


class _Reader:
    """Parses kernels in a text, and tracks lines."""

    def __init__(self, text: str):
        self.text = text
        self.ends = [match.start() for match in re.finditer("\n", text)]

    def line(self, at: int) -> int:
        return bisect_right(self.ends, at - 1) + 1

    def kernel(self, entry: re.Match[str]) -> tuple[PtxKernel, int]:
        """The kernel, and the offset after it."""
        kernel = PtxKernel(entry["name"], self.line(entry.start()))
        self._params(kernel, entry["params"] or "")
        self._bounds(kernel, entry["rest"])
        scopes: list[dict[str, str]] = [{}]  # names of inner scopes -> names in the kernel
        targets: dict[str, list[str]] = {}
        label = ""
        at = entry.end()
        while scopes:
            item = _ITEM.match(self.text, at)
            if item is None:
                line_text = self.text[at:].strip().split("\n")[0]
                raise PtxError(
                    f"not an instruction: {line_text or 'the text ends'}", line=self.line(at)
                )
            line, at = self.line(item.start(item.lastgroup or 0)), item.end()
            if item["open"]:
                scopes.append(self._labels(at))
            elif item["close"]:
                scopes.pop()
            elif item["label"]:
                label = scopes[-1].get(item["label"], item["label"])
                if label in kernel.labels:
                    raise PtxError(f"{kernel.name}: the label {label} is there twice", line=line)
                kernel.labels[label] = len(kernel.statements)
            elif directive := item["directive"]:
                if directive.startswith(".branchtargets"):
                    targets[label] = directive.replace(",", " ").split()[1:]
                else:
                    self._directive(kernel, directive, scopes, line)
            elif instruction := item["instruction"]:
                statement = _statement(instruction, scopes, line)
                kernel.statements += _expand(kernel, statement, targets)
        return kernel, at

    def _labels(self, at: int) -> dict[str, str]:
        """Labels of the scope that begins at an offset, with unique names: they are local to it."""
        names: dict[str, str] = {}
        depth, start = 1, at
        while depth and (item := _ITEM.match(self.text, at)):
            at = item.end()
            depth += bool(item["open"]) - bool(item["close"])
            if item["label"] and depth == 1:
                names[item["label"]] = f"{item['label']}'{start}"
        return names

    def _params(self, kernel: PtxKernel, text: str) -> None:
        offset = 0
        for part in filter(None, map(str.strip, text.split(","))):
            param = _PARAM.match(part)
            if param is None or param["type"] not in BYTES:
                raise PtxError(f"a parameter of {kernel.name}: {part}", line=kernel.line)
            size = BYTES[param["type"]] * int(param["count"] or 1)
            offset = round_up(offset, check_align(param["align"], BYTES[param["type"]]))
            if offset + size > _MOST_PARAM_BYTES:
                raise PtxError(f"{kernel.name}: too many bytes of parameters", line=kernel.line)
            kernel.params[param["name"]] = Variable(param["name"], "param", offset, size, 1)
            offset += size

    def _bounds(self, kernel: PtxKernel, text: str) -> None:
        for bound in _BOUND.finditer(text):
            if bound[1] in ("maxntid", "reqntid"):
                sizes = [int(n) for n in bound[2].replace(",", " ").split()]
                if not 1 <= len(sizes) <= 3 or not 1 <= math.prod(sizes) <= MAX_BLOCK_THREADS:
                    raise PtxError(f"{kernel.name}: {bound[0].strip()}", line=kernel.line)
                kernel.most_threads = math.prod(sizes)
                if bound[1] == "reqntid":
                    kernel.required = (*sizes, *([1] * (3 - len(sizes))))
            elif bound[1] == "reqnctapercluster":
                kernel.cluster = _cluster(kernel, bound)
            elif bound[1] in ("maxnreg", "minnctapersm"):
                numbers = [int(n) for n in bound[2].replace(",", " ").split()]
                if len(numbers) != 1 or not 1 <= numbers[0] <= MAX_BLOCK_THREADS:
                    raise PtxError(f"{kernel.name}: {bound[0].strip()}", line=kernel.line)
                name = "max_registers" if bound[1] == "maxnreg" else "min_blocks"
                setattr(kernel, name, numbers[0])
        if unparsed := _BOUND.sub("", text).strip():
            raise PtxError(f"{kernel.name}: not understood: {unparsed}", line=kernel.line)

    def _directive(
        self, kernel: PtxKernel, text: str, scopes: list[dict[str, str]], line: int
    ) -> None:
        if registers := _REGISTERS.fullmatch(text):
            for name in registers["names"].split(","):
                _declare(kernel, registers["type"], name.strip(), scopes, line)
        elif variable := place_variable(text, kernel.variables):
            if variable.space not in ("shared", "local"):
                raise PtxError(f"{kernel.name}: {text} inside of a kernel", line=line)
            kernel.variables[variable.name] = variable
        elif not text.startswith(".pragma"):
            raise PtxError(f"{kernel.name}: not understood: {text.strip()}", line=line)


def _cluster(kernel: PtxKernel, bound: re.Match[str]) -> tuple[int, ...]:
    sizes = [int(n) for n in bound[2].replace(",", " ").split()]
    if not 1 <= len(sizes) <= 3 or not 1 <= math.prod(sizes) <= MAX_CLUSTER_BLOCKS:
        raise PtxError(f"{kernel.name}: {bound[0].strip()}", line=kernel.line)
    return (*sizes, *([1] * (3 - len(sizes))))


def _declare(
    kernel: PtxKernel, type_: str, text: str, scopes: list[dict[str, str]], line: int
) -> None:
    """Registers, several if the name ends in <count>; inner scopes get unique names."""
    match = re.fullmatch(r"(?P<name>%?[\w$]+)(?:<(?P<count>\d+)>)?", text)
    if match is None or type_ not in WIDTHS:
        raise PtxError(f"{kernel.name}: registers {text!r} of type {type_}", line=line)
    names = [match["name"]]
    if match["count"]:
        if int(match["count"]) + len(kernel.registers) > _MOST_REGISTERS:
            raise PtxError(f"{kernel.name}: {match['count']} registers", line=line)
        names = [f"{match['name']}{i}" for i in range(int(match["count"]))]
    for name in names:
        unique = name
        while len(scopes) > 1 and unique in kernel.registers:
            unique += "'"
        if len(scopes) > 1:
            scopes[-1][name] = unique
        kernel.registers[unique] = WIDTHS[type_]


def _statement(text: str, scopes: list[dict[str, str]], line: int) -> Statement:
    match = _INSTRUCTION.fullmatch(text.strip())
    if match is None:
        raise PtxError(f"not an instruction: {text.strip()}", line=line)
    names: dict[str, str] = {}
    for scope in scopes:
        names |= scope
    operands, guard = match["operands"], match["guard"]
    if names:
        operands = _NAME.sub(lambda name: names.get(name[0], name[0]), operands)
        guard = names.get(guard, guard) if guard else guard
    split = tuple(split_operands(operands))
    return Statement(match["opcode"], split, guard, bool(match["unless"]), line)


def _expand(
    kernel: PtxKernel, statement: Statement, targets: dict[str, list[str]]
) -> Iterator[Statement]:
    """A branch through a table becomes a list of comparisons; an index out of range traps."""
    if not statement.opcode.startswith("brx.idx"):
        yield statement
        return
    index, table = statement.operands if len(statement.operands) == 2 else ("", "")
    if statement.guard or table not in targets:
        raise PtxError(f"{kernel.name}: not understood: brx.idx {table}", line=statement.line)
    kernel.registers["%brx"] = 1
    for number, target in enumerate(targets[table]):
        operands = ("%brx", index, str(number))
        yield Statement("setp.eq.u32", operands, None, False, statement.line)
        yield Statement("bra", (target,), "%brx", False, statement.line)
    yield Statement("trap", (), None, False, statement.line)


def split_operands(text: str) -> list[str]:
    """Split operands at commas, except inside braces and brackets."""
    return [part for part in map(str.strip, _OPERAND.findall(text)) if part]
