"""Target machines: parses a target string to a frozen record.

In: `cpu`, a level such as `x86_64-v3` or `aarch64`, a processor by LLVM's name (`haswell`,
`neoverse-n1`), or `cuda:sm_80` and the like. Out: a `Target` with the triple, the features by
LLVM's names and the sizes that schedules tile by. Every folder may import this file; it loads
neither MLIR nor LLVM (only `llvm_cpu` queries LLVM, and only during code generation).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from nova import knobs
from nova.core.cpu_features import BASES, FLAGS
from nova.core.cpus import PROCESSORS, processor_features
from nova.core.packages import compiler_missing
from nova.core.records import record
from nova.errors import TargetError

# Architecture of a device -> the PTX version of its code: the oldest version that supports
# the architecture and the instructions that Nova emits, so that old drivers accept it. LLVM aborts
# the process on a pair that does not exist.
_DEVICES = {
    "sm_80": 80,
    "sm_86": 80,
    "sm_87": 80,
    "sm_89": 80,
    "sm_90": 80,
    "sm_90a": 80,
    "sm_100": 86,
    "sm_100a": 86,
    "sm_120": 87,
    "sm_120a": 87,
}
DEVICES = tuple(f"cuda:{arch}" for arch in _DEVICES)

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

# name -> (LLVM's CPU name, features above the architecture's baseline)
_NAMED = {
    "x86_64": ("x86-64", ()),
    "x86_64-v2": ("x86-64-v2", _V2),
    "x86_64-v3": ("x86-64-v3", _V3),
    "x86_64-v4": ("x86-64-v4", _V4),
    "aarch64": ("generic", ("neon",)),
}
NAMES = ("cpu", *_NAMED)
"""The targets that do not depend on a list of processors."""

_AMD = re.compile(r"znver|bdver|btver|amdfam|barcelona|k8|opteron|athlon")

# Named targets assume the caches of a modest machine of their class, so that code compiled for them
# runs well on all such machines; `cpu` uses the sizes of this machine.
_COMMON_CACHES = (32 << 10, 512 << 10, 8 << 20)


@record
class Target:
    """One machine to compile for; equal targets give equal code."""

    name: str
    triple: str
    cpu: str
    """LLVM's CPU name; empty for `cpu`, whose name only LLVM knows: see `llvm_cpu`."""
    model: str
    """Identifies the processor: vendor, family and model for `cpu`, the vendor for a processor
    by name, empty for a level."""
    features: tuple[str, ...]
    """All features that generated code may use beyond the baseline of the architecture."""
    vector_bits: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int

    @property
    def arch(self) -> str:
        return self.triple.partition("-")[0]

    @property
    def is_device(self) -> bool:
        """Whether its code runs on a GPU."""
        return self.arch == "nvptx64"

    @property
    def has_clusters(self) -> bool:
        """Blocks of a GPU may form clusters that share memory: from Hopper on."""
        return self.is_device and int("".join(c for c in self.cpu if c.isdigit())) >= 90

    @property
    def has_fma(self) -> bool:
        return self.arch != "x86_64" or "fma" in self.features

    @property
    def has_f16c(self) -> bool:
        """f16 <-> f32 conversion is an instruction, not a library call."""
        return self.arch != "x86_64" or "f16c" in self.features

    @property
    def has_bf16_dot(self) -> bool:
        """A vector instruction multiplies VNNI pairs of bf16 and adds to f32 (AVX512-BF16)."""
        return self.vector_bits == 512 and "avx512bf16" in self.features

    @property
    def has_fast_bf16_dot(self) -> bool:
        """That instruction beats widening to f32: on Intel's processors it takes twice as long."""
        return self.has_bf16_dot and not self.model.startswith("GenuineIntel")

    @property
    def has_bf16_tiles(self) -> bool:
        """The same for whole tiles (AMX), in processes that may use tile registers."""
        return self.has_bf16_dot and {"amx-tile", "amx-bf16"} <= set(self.features)

    @property
    def has_byte_dot(self) -> bool:
        """A vector instruction adds four products of u8 and i8 to an i32 (VNNI)."""
        return {256: "avxvnni", 512: "avx512vnni"}.get(self.vector_bits) in self.features

    @property
    def has_i16_dot(self) -> bool:
        """A vector instruction adds two products of i16: in SSE2, AVX2 and AVX512-BW."""
        least = {128: "", 256: "avx2", 512: "avx512bw"}[self.vector_bits]
        return self.arch == "x86_64" and (not least or least in self.features)

    @property
    def has_byte_tiles(self) -> bool:
        """AMX multiplies tiles of bytes, in processes that may use tile registers."""
        has_tiles = {"amx-tile", "amx-int8"} <= set(self.features)
        return has_tiles and self.vector_bits == 512 and self.has_byte_dot

    @property
    def native_rounding(self) -> bool:
        """floor, ceil, trunc and round-to-even of a float vector are instructions."""
        return self.arch != "x86_64" or "sse4.1" in self.features

    @property
    def native_scale(self) -> bool:
        """A float vector times powers of two is an instruction (AVX-512)."""
        return self.vector_bits == 512 and "avx512f" in self.features

    def lanes(self, bits: int) -> int:
        """Number of elements of this width in one vector register."""
        return self.vector_bits // bits

    def llvm_base(self) -> str:
        """The processor that LLVM generates code for: it has only the listed features."""
        return self.cpu if self.is_device else BASES[self.arch]

    def llvm_features(self) -> str:
        """The feature string for LLVM's target machine.

        Absent features are disabled explicitly: a listed feature may imply one that a hypervisor
        hides.
        """
        words = [f"+{f}" for f in self.features]
        if not self.is_device:
            words += [f"-{f}" for f in FLAGS[self.arch] if f not in self.features]
        if self.vector_bits == 512:
            words.append("-prefer-256-bit")
        return ",".join(words)

    def key(self) -> str:
        """A stable text for cache keys: everything that the generated code depends on."""
        text = "|".join(
            (
                self.triple,
                self.cpu,
                self.model,
                ",".join(self.features),
                f"v{self.vector_bits}x{self.vector_registers}",
                f"c{self.l1_bytes}-{self.l2_bytes}-{self.l3_bytes}",
            )
        )
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


@functools.cache
def parse_target(text: str) -> Target:
    """The target that `text` names."""
    if text == "cpu":
        return _host()
    if text in _NAMED:
        cpu, features = _NAMED[text]
        arch = "aarch64" if text == "aarch64" else "x86_64"
        return _make(text, arch, cpu, "", features, _COMMON_CACHES)
    if text in DEVICES:
        return _device(text)
    for arch, table in PROCESSORS.items():
        if text in table:
            features = tuple(processor_features(arch, text))
            return _make(text, arch, text, _vendor(arch, text), features, _COMMON_CACHES)
    raise _unknown(text)


def _unknown(text: str) -> TargetError:
    """The error for a text that is not a target, or a target that only a GPU driver knows."""
    message, devices = f"unknown target {text!r}", ", ".join(DEVICES)
    if text == "cuda":
        return TargetError(
            "target 'cuda' is the GPU of one machine, and this needs one with a name, such as "
            "cuda:sm_80",
            hint=f"code for cuda:sm_80 runs on newer GPUs as well; there are {devices}",
        )
    if re.fullmatch(r"(gpu|nvidia|cuda)(:[0-9])?", text.lower()):
        return TargetError(
            message, hint=f"'cuda' is the GPU of this machine; those with a name are {devices}"
        )
    if re.fullmatch(r"(cuda:)?(sm_)?[1-7][0-9]", text.lower()):
        return TargetError(message, hint="cuda:sm_80 is the oldest GPU that there is code for")
    if text.partition(":")[0] == "sim":
        return TargetError(
            message,
            hint="compile for cuda:sm_80, say, with run_mode='sim'; sim is a device to run on",
        )
    import difflib  # only for an error message

    # Nova's own names first: most people mean these.
    for names, cutoff in ((_processors(), 0.75), ((*NAMES, *DEVICES, *_processors()), 0.5)):
        near = difflib.get_close_matches(text.lower(), names, n=1, cutoff=cutoff)
        if near:
            break
    return TargetError(
        message,
        hint=(f"did you mean {near[0]!r}? " if near else "")
        + f"targets: {', '.join((*NAMES, *DEVICES))}, and LLVM's names of processors, such as "
        "haswell, znver4 and neoverse-n1",
    )


def _processors() -> tuple[str, ...]:
    return tuple(name for table in PROCESSORS.values() for name in table)


def _vendor(arch: str, name: str) -> str:
    """The vendor as in /proc/cpuinfo, if code generation depends on it."""
    return "" if arch != "x86_64" else "AuthenticAMD" if _AMD.match(name) else "GenuineIntel"


def _device(text: str) -> Target:
    arch = text.removeprefix("cuda:")
    return Target(
        name=text,
        triple="nvptx64-nvidia-cuda",
        cpu=arch,
        model="",
        features=(f"ptx{_DEVICES[arch]}",),
        vector_bits=128,
        vector_registers=255,
        l1_bytes=128 << 10,
        l2_bytes=40 << 20,
        l3_bytes=0,
    )


def host_arch(targets: Iterable[Target]) -> str:
    """The CPU architecture that loads a file for `targets`: this machine's for devices."""
    return next((t.arch for t in targets if not t.is_device), None) or _host().arch


def llvm_cpu(target: Target) -> str:
    """LLVM's name of the target's CPU; loads LLVM for `cpu`."""
    if target.cpu:
        return target.cpu
    return _host_cpu_name()


@functools.cache
def _host_cpu_name() -> str:
    try:
        import llvmlite.binding
    except (ImportError, OSError) as error:
        raise compiler_missing(error) from error
    return str(llvmlite.binding.get_host_cpu_name())


def _make(
    name: str,
    arch: str,
    cpu: str,
    model: str,
    features: tuple[str, ...],
    caches: tuple[int, int, int],
) -> Target:
    wide = {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(features)
    return Target(
        name=name,
        triple=f"{arch}-unknown-linux-gnu",
        cpu=cpu,
        model=model,
        features=tuple(sorted(features)),
        vector_bits=512 if wide else 256 if "avx2" in features else 128,
        vector_registers=32 if wide or arch == "aarch64" else 16,
        l1_bytes=caches[0],
        l2_bytes=caches[1],
        l3_bytes=caches[2],
    )


def _host() -> Target:
    machine = os.uname().machine
    arch = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(machine)
    try:
        info = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        info = ""
    fields = {
        key.strip(): value.strip()
        for key, _, value in (line.partition(":") for line in info.splitlines())
    }
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    if arch is None or not flags:
        raise TargetError(
            f"the features of this processor ({machine or 'unknown'}) cannot be read",
            hint=f"name a target: {', '.join(NAMES[1:])}",
        )
    from nova import _native  # features its loader rejects, such as AMX in a sandbox, are absent

    usable = set(_native.cpu_features())
    features = tuple(f for f, flag in FLAGS[arch].items() if flag in flags and f in usable)
    identity = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
    model = "/".join(fields[key] for key in identity if key in fields)
    return _make("cpu", arch, "", model, features, _host_caches())


def _follow(is_known: bool) -> None:
    """Limit the process to the level of the knob, or of the environment."""
    from nova import _native

    number = {"all": 5, "x86_64": 1, "x86_64-v2": 2, "x86_64-v3": 3, "x86_64-v4": 4, "aarch64": 1}
    _native.limit_cpu(number[knobs.get("cpu_level")] if is_known else 0)
    parse_target.cache_clear()


knobs.watch(("cpu_level",), _follow)


def _host_caches() -> tuple[int, int, int]:
    """Data cache sizes by level; common sizes for a level that the system does not report."""
    sizes = dict(enumerate(_COMMON_CACHES, start=1))
    for entry in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            cache_type, level, size = (
                (entry / part).read_text().strip() for part in ("type", "level", "size")
            )
        except OSError:
            continue
        if cache_type != "Instruction" and (number := re.fullmatch(r"(\d+)([KM]?)", size)):
            sizes[int(level)] = int(number[1]) << {"": 0, "K": 10, "M": 20}[number[2]]
    return sizes[1], sizes[2], sizes[3]
