"""Every setting of Nova, in one table.

In: environment variables `NOVA_*`, `nova.knobs.<name> = value`, `with nova.knobs.override(...)`.
Out: `nova.knobs.<name>`, a checked value of the knob's type; an override wins over an assignment,
an assignment over the environment, the environment over the default. Read by everybody;
`docs/knobs.md` is generated from the table.

    nova.knobs.cache = False                        # this process
    with nova.knobs.override(log="compile", threads=1):  # this thread or task, this block
        ...

A variable is read once, at the first read of its knob. An override is seen by the thread that
made it; a thread pool shares it by running its work in `contextvars.copy_context()`.
"""

from __future__ import annotations

import os
import re
import sys
import types
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from nova.core.suggest import did_you_mean, find_close, unknown_name
from nova.errors import KnobError, KnobWarning

TOPICS = ("compile", "cache", "run", "load", "tune")
SIM_SCHEDULES = ("late", "early", "random")
DEVICE_LOOPS = ("auto", "nodes", "host")
DEVICE_OVERLAP = ("auto", "dependent", "branches", "off")
"""In the order of the simulator's numbers."""
LAUNCHES = ("graph", "persistent", "auto")
MOST_NODES, MOST_NODE_CPUS = 64, 256
"""Of simulated NUMA nodes: the limits of the scheduler."""


class Kind(NamedTuple):
    """A type of knob: what it takes in words, and the check that raises ValueError on the rest.

    An empty variable of the environment counts as one that is not set, except where `refuse_empty`
    says that it is an error. `words` are all values of a kind that is a choice.
    """

    takes: str
    parse: Callable[[Any], Any]
    refuse_empty: bool = False
    words: tuple[str, ...] = ()


class Knob(NamedTuple):
    """A row of the table. `default` is a value, or a function of no arguments that finds it."""

    name: str
    kind: Kind
    default: Any
    default_text: str
    doc: str

    @property
    def variable(self) -> str:
        return "NOVA_" + self.name.upper()

    def check(self, value: Any, written_as: str) -> Any:
        """`value` as the knob's type; `written_as` names the place it came from."""
        try:
            return self.kind.parse(value)
        except (TypeError, ValueError):
            close = find_close(str(value), self.kind.words, cutoff=0.7)
            takes = f"it takes {self.kind.takes}"
            raise KnobError(
                f"{written_as} cannot be {value!r}",
                hint=f"did you mean {close}? {takes}" if close else takes,
            ) from None


_ON, _OFF = ("1", "true", "on", "yes"), ("0", "false", "off", "no")


def _parse_flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in _ON + _OFF:
        raise ValueError
    return word in _ON


def _parse_count(value: Any) -> int:
    if isinstance(value, (bool, float)):
        raise TypeError
    count = int(value)
    if count < 1:
        raise ValueError
    return count


def _parse_size(value: Any) -> int:
    if isinstance(value, (bool, float)):
        raise TypeError
    text = str(value).strip().upper().removesuffix("B").removesuffix("I")
    shift = {"K": 10, "M": 20, "G": 30, "T": 40}.get(text[-1:], 0)
    size = int(text[:-1] if shift else text) << shift
    if size < 0:
        raise ValueError
    return size


def _parse_limit(value: Any) -> int | None:
    return None if value is None or str(value).strip().lower() == "none" else _parse_size(value)


def _parse_seconds(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    seconds = float(value)
    if not 0 <= seconds < float("inf"):
        raise ValueError
    return seconds


def _parse_folder(value: Any) -> str | None:
    return _expand_user(os.fspath(value)) if value not in (None, "") else None


def _expand_user(path: str) -> str:
    """The path with its user's home folder; ValueError where nobody knows that folder."""
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise ValueError
    return expanded


def _parse_paths(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str | os.PathLike):
        value = os.fspath(value).split(os.pathsep)
    words = [os.fspath(word) for word in value]
    if not all(isinstance(word, str) and word for word in words):
        raise ValueError
    return tuple(_expand_user(word) for word in words)


def _parse_names(value: Any) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    return tuple(word.strip() for word in words if word.strip())


def _parse_topics(value: Any) -> frozenset[str]:
    words = value.split(",") if isinstance(value, str) else value
    topics = frozenset(word.strip() for word in words if word.strip())
    if "all" in topics:
        return frozenset(TOPICS)
    if not topics <= set(TOPICS):
        raise ValueError
    return topics


def _parse_check(value: Any) -> str:
    word = str(value).strip().lower()
    if word in _OFF or value is False or word == "":
        return "off"
    if word in _ON or value is True:
        return "1"
    if word != "nan":
        raise ValueError
    return word


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


def _parse_gemm(value: Any) -> str:
    if not re.fullmatch(r"auto|mma|wgmma(-\d+x\d+(x\d+){0,2})?", str(value)):
        raise ValueError
    return str(value)


def _parse_attention(value: Any) -> str:
    if not re.fullmatch(r"auto|mma|wgmma(-\d+x\d+(x\d+)?)?", str(value)):
        raise ValueError
    return str(value)


def _parse_nodes(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = () if value.strip() == "auto" else value.split("+")
    sizes = tuple(_parse_count(size) for size in value)
    if len(sizes) > MOST_NODES or sum(sizes) > MOST_NODE_CPUS:
        raise ValueError
    return sizes


def _one_of(*words: str) -> Kind:
    def parse(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return Kind(f"one of {', '.join(words)}", parse, words=words)


def _count_cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # absent on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _choose_output_pool() -> int:
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on every system
        memory = 0
    return min(1 << 30, memory // 8) if memory > 0 else 1 << 30


GEMM = Kind("auto, mma, wgmma, or wgmma-ROWSxCOLUMNS[xCLUSTER[xSPLIT]] of a tile", _parse_gemm)
ATTENTION = Kind("auto, mma, wgmma, or wgmma-ROWSxKEYS[xCONSUMERS] of a tile", _parse_attention)
NODES = Kind(
    f"auto, or the CPUs of simulated nodes, such as 8+8: up to {MOST_NODES} nodes with "
    f"{MOST_NODE_CPUS} CPUs together",
    _parse_nodes,
)
FLAG = Kind("1, true, on, yes or 0, false, off, no", _parse_flag)
COUNT = Kind("a whole number, at least 1", _parse_count)
WORK = Kind(
    "a number of operations, with an optional suffix K, M, G or T (64K is 65536)", _parse_size
)
SIZE = Kind("a number of bytes, with an optional suffix K, M, G or T (512M)", _parse_size)
LIMIT = Kind("a number of bytes, with an optional suffix K, M, G or T, or none", _parse_limit)
SECONDS = Kind("a number of seconds, 0 or more", _parse_seconds)
FOLDER = Kind("the path of a folder; empty for none", _parse_folder)
PROGRAM = Kind("the name or path of a program; empty for what is found", _parse_folder)
NAMES = Kind("a comma-separated list of names", _parse_names)
# An empty list of keys is more often a mistake of the shell than a wish to trust every file.
PATHS = Kind(f"paths of files or folders, with {os.pathsep!r} between them", _parse_paths, True)
TEXT = Kind("a text that is not empty", _parse_text)
CHECK = Kind("one of off, 1, nan", _parse_check)
TOPIC_SET = Kind(f"a comma-separated list of {', '.join(TOPICS)}, or all", _parse_topics)

CPU_LEVELS = ("x86_64", "x86_64-v2", "x86_64-v3", "x86_64-v4", "aarch64")

KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob("log", TOPIC_SET, frozenset(), "none", "Topics that print lines on stderr."),
        Knob("dump", FOLDER, None, "none", "Folder that gets the text of every compile stage."),
        Knob("cache", FLAG, True, "on", "Keep compiled programs on disk between processes."),
        Knob("cache_dir", FOLDER, None, "the user's cache folder", "Where the disk cache lives."),
        Knob("cache_size", SIZE, 2 << 30, "2G", "Bytes the disk cache may take; oldest go first."),
        Knob("cache_memory", SIZE, 1 << 30, "1G",
             "Bytes of compiled programs that a process keeps for later compiles; the least "
             "recently used go first."),
        Knob("cache_wait", SECONDS, 300.0, "300",
             "Seconds to wait for another process that compiles the same program."),
        Knob("threads", COUNT, _count_cores, "the cores of this process",
             "Worker threads, for compiling and for running; 1 runs everything on the caller."),
        Knob("policy", _one_of("locality", "fifo", "critical-path"), "locality", "locality",
             "Which ready task a worker takes: the newest, the oldest, the longest way to go."),
        Knob("affinity", FLAG, False, "off", "Bind each worker thread to a core of its own."),
        Knob("numa", NODES, (), "auto",
             "NUMA nodes: threads stay on a node and steal tasks there first; auto reads those of "
             "the machine, sizes simulate others."),
        Knob("jit_programs", COUNT, 256, "256",
             "Programs that a jitted function keeps; the least recently used one goes."),
        Knob("fast_math", FLAG, False, "off",
             "Let the compiler rearrange float arithmetic; see fast-math.md."),
        Knob("serial_work", WORK, 20_000, "20000",
             "Scalar operations below which ops share one kernel without tiles."),
        Knob("tile_work", WORK, 65_536, "65536", "Scalar operations that one tile should have."),
        Knob("task_ns", COUNT, 50_000, "50000",
             "Nanoseconds of estimated work that one task should have."),
        Knob("max_workspace", LIMIT, None, "none",
             "Bytes of workspace that a run may use; to fit, the compiler rematerializes values "
             "and forms smaller kernels, or raises WorkspaceError."),
        Knob("specialize_after", WORK, 0, "0",
             "Calls after which a size of a symbolic program gets code of its own, compiled in the "
             "background; 0 for never. See dynamic-shapes.md."),
        Knob("tune", SECONDS, 0.0, "0",
             "Seconds a compile may spend on trying schedules on this machine; see tuning.md."),
        Knob("text_seconds", SECONDS, 600.0, "600",
             "Seconds that a program from a text may take to compile before it is stopped."),
        Knob("output_pool", SIZE, _choose_output_pool, "1G, at most an eighth of memory",
             "Bytes of dropped large results that are kept for the next ones; 0 for none."),
        Knob("check", CHECK, "off", "off",
             "Compare each step of a run with numpy (1) or stop at NaN (nan); see debugging.md."),
        Knob("progress", _one_of("auto", "on", "off"), "auto", "auto",
             "Progress of long compiles, with auto on a terminal only, and of fit."),
        Knob("trusted_keys", PATHS, (), "none: signatures are not looked at",
             "Public keys, as PEM files or folders of them; files not signed by one are refused."),
        Knob("target", TEXT, "cpu", "cpu", "What is compiled for where no target is given."),
        Knob("cpu_level", _one_of("all", *CPU_LEVELS), "all", "all",
             "The most of the processor that target cpu and files may use, for the whole process."),
        Knob("winograd", _one_of("auto", "on", "off"), "auto", "auto",
             "Which 3x3 convolutions of f32 a CPU computes by Winograd's algorithm: those that it "
             "is estimated to make faster (auto), all that it can (on), or none (off); see "
             "fast-math.md."),
        Knob("tf32", FLAG, False, "off",
             "Let devices round the factors of f32 matmuls to 11 bits, for tensor cores."),
        Knob("matmul_precision", _one_of("highest", "high", "tf32"), "highest", "highest",
             "How devices multiply f32 matrices: exactly (highest), by three tensor-core matmuls "
             "with 22 bits of each factor (high), or by one with 11 bits (tf32); see devices.md."),
        Knob("gpu_gemm", GEMM, "auto", "auto",
             "The GEMM of narrow floats on Hopper GPUs; auto estimates which is faster."),
        Knob("device_loops", _one_of(*DEVICE_LOOPS), "auto", "auto",
             "Who decides the loops and branches of programs that are loaded for a device: the "
             "device (nodes; auto also unrolls short loops), or the host; see devices.md."),
        Knob("launch", _one_of(*LAUNCHES), "graph", "graph",
             "How the launches of programs for devices run: as nodes of a graph, as tasks of one "
             "resident kernel, or as predicted to be faster; see persistent-kernels.md."),
        Knob("device_overlap", _one_of(*DEVICE_OVERLAP), "auto", "auto",
             "What the launches of programs that are loaded for a device do concurrently: "
             "each starts before the one before it ends (dependent), independent ones run in "
             "branches (branches), both (auto), or nothing (off); see devices.md."),
        Knob("gpu_attention", ATTENTION, "auto", "auto",
             "The attention of 16-bit floats on Hopper GPUs: warpgroup matmuls or mma.sync."),
        Knob("sim_schedule", _one_of(*SIM_SCHEDULES), "late", "late",
             "When asynchronous operations of programs that are loaded for device `sim` happen: as "
             "late as allowed, as early as allowed, or at random, the same in every run."),
        Knob("cubin", FLAG, False, "off",
             "Put cubins next to the PTX of files for devices, which needs ptxas; see devices.md."),
        Knob("ptxas", PROGRAM, None, "that on PATH, or in the packages nvidia-cuda-nvcc and triton",
             "The assembler of NVIDIA that makes cubins and checks PTX."),
        Knob("check_ptx", FLAG, True, "on",
             "Let ptxas, where there is one, check PTX that goes into a file; see devices.md."),
        Knob("spills", NAMES, (), "none",
             "Device kernels that may keep registers in memory and go into files."),
    )
}  # fmt: skip

# What type checkers know about `nova.knobs.<name>`; a test compares it with the table.
log: frozenset[str]
dump: str | None
cache: bool
cache_dir: str | None
cache_size: int
cache_memory: int
cache_wait: float
threads: int
policy: str
affinity: bool
numa: tuple[int, ...]
jit_programs: int
fast_math: bool
serial_work: int
tile_work: int
task_ns: int
max_workspace: int | None
specialize_after: int
tune: float
text_seconds: float
output_pool: int
check: str
progress: str
trusted_keys: tuple[str, ...]
target: str
cpu_level: str
winograd: str
tf32: bool
matmul_precision: str
gpu_gemm: str
device_loops: str
launch: str
device_overlap: str
gpu_attention: str
sim_schedule: str
cubin: bool
ptxas: str | None
check_ptx: bool
spills: tuple[str, ...]

_assigned: dict[str, Any] = {}
_from_environment: dict[str, Any] = {}
_watchers: list[tuple[frozenset[str], Callable[[bool], None]]] = []
_NO_OVERRIDES: Mapping[str, Any] = types.MappingProxyType({})
_overrides: ContextVar[Mapping[str, Any]] = ContextVar("nova_knobs", default=_NO_OVERRIDES)


def get(name: str) -> Any:
    """The value of a knob in this thread, now; `nova.knobs.<name>` is the same."""
    overrides = _overrides.get()
    if name in overrides:
        return overrides[name]
    return process_value(name)


def overridden() -> Mapping[str, Any]:
    """The knobs that a block around the caller overrides."""
    return _overrides.get()


def process_value(name: str) -> Any:
    """The value of a knob without overrides: that of threads which have none."""
    if name in _assigned:
        return _assigned[name]
    try:
        return _from_environment[name]
    except KeyError:
        return _from_environment.setdefault(name, _read_environment(_find(name)))


def _read_environment(knob: Knob) -> Any:
    text = os.environ.get(knob.variable)
    if text is not None and (text or knob.kind.refuse_empty):
        return knob.check(text, knob.variable)
    return knob.default() if callable(knob.default) else knob.default


def peek(name: str) -> Any:
    """What `process_value` would return. A variable is not kept: a later read reads it again."""
    if name in _assigned or name in _from_environment:
        return process_value(name)
    return _read_environment(_find(name))


@contextmanager
def override(**values: Any) -> Iterator[None]:
    """Give knobs other values inside of a `with` block, for this thread or task only."""
    checked = {name: _find(name).check(value, f"knob {name}") for name, value in values.items()}
    token = _overrides.set({**_overrides.get(), **checked})
    try:
        _tell(checked)
        yield
    finally:
        _overrides.reset(token)
        _tell(checked)


def watch(names: Collection[str], function: Callable[[bool], None]) -> None:
    """Call `function` when one of the knobs may have changed, in the thread that did it.

    It is given whether the knobs have values: after `reset` they get them when they are read.
    """
    _watchers.append((frozenset(names), function))


def _tell(names: Collection[str], known: bool = True) -> None:
    for watched, function in _watchers:
        if not watched.isdisjoint(names):
            function(known)


def reset() -> None:
    """Forget every assignment, and read the environment again at the next read."""
    _assigned.clear()
    _from_environment.clear()
    _tell(KNOBS, known=False)


def check_environment(environment: Mapping[str, str]) -> None:
    """Warn of `NOVA_*` variables whose names are close to a knob: they are probably misspelt.

    Other programs have such variables as well: Kubernetes sets `NOVA_SERVICE_HOST` for a service
    called nova, and clients of OpenStack read `NOVA_URL`. Those are left alone.
    """
    known = {knob.name.upper(): knob.variable for knob in KNOBS.values()}
    misspelt = []
    for variable in environment:
        name = variable.removeprefix("NOVA_")
        if name != variable and name not in known and (close := find_close(name.upper(), known)):
            misspelt.append(f"{variable} (did you mean {known[close]}?)")
    if misspelt:
        warnings.warn(
            f"not settings of Nova, and ignored: {', '.join(misspelt)}", KnobWarning, stacklevel=2
        )


def _find(name: str) -> Knob:
    try:
        return KNOBS[name]
    except KeyError:
        raise KnobError(
            f"there is no knob {name!r}", hint=did_you_mean(name, KNOBS, "there are {}")
        ) from None


class _KnobsModule(types.ModuleType):
    """Makes `nova.knobs.cache` and `nova.knobs.cache = False` read and write the table."""

    def __getattr__(self, name: str) -> Any:
        if name in KNOBS:
            return get(name)
        raise unknown_name("module 'nova.knobs'", name, dir(self))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or name.startswith("_"):
            super().__setattr__(name, value)
        else:
            _assigned[name] = _find(name).check(value, f"knob {name}")
            _tell((name,))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *KNOBS})


check_environment(os.environ)
sys.modules[__name__].__class__ = _KnobsModule
