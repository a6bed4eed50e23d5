"""The peak rates of this machine, measured once and kept in the cache folder.

Out: `Peaks`, from a loop of multiply-adds and a loop of copies, on one core and on all cores that
the process may use; traces compare with them. The file is JSON, keyed by CPU model and number of
cores; an unreadable file is measured again, an unusable folder is not written.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from hashlib import sha256
from pathlib import Path

from nova import _native
from nova.artifact.cache.disk import open_cache
from nova.artifact.cache.folder import make_folder
from nova.artifact.files import write_atomically

_SECONDS = 0.1
"""The duration of a measurement; the best of many short blocks counts, so that a busy machine does
not spoil it."""

_COPIED = 32 << 20
"""Bytes that each thread copies: more than a core's share of any cache."""


@dataclass(frozen=True)
class Peaks:
    """Operations and bytes (read and written) per second, f32, of one core and of `cores`."""

    cores: int
    core_flops: float
    core_bytes: float
    flops: float
    bytes: float


def measured_peaks() -> Peaks:
    """The peaks of this machine, from the cache folder or measured now (under a second)."""
    store = open_cache()
    folder = None if store is None or store.problem() else str(store.folder)
    return _peaks_in(folder, _cpu_name(), len(os.sched_getaffinity(0)))


@cache
def _peaks_in(folder: str | None, cpu: str, cores: int) -> Peaks:
    """The peaks in a folder; without a folder they are measured in every process."""
    name = sha256(f"{cpu}/{cores}/1".encode()).hexdigest()[:16]
    path = None if folder is None else Path(folder) / f"peaks-{name}.json"
    peaks = None if path is None else _read(path)
    if peaks is None:
        peaks = _measure(cores)
        if path is not None:
            with suppress(OSError):  # a full or read-only disk: measured again next time
                make_folder(path.parent)
                write_atomically(path, json.dumps(asdict(peaks)).encode(), mode=0o600, sync=False)
    return peaks


def _read(path: Path) -> Peaks | None:
    try:
        values = json.loads(path.read_bytes())
        if set(values) != {f.name for f in fields(Peaks)}:
            return None
        peaks = Peaks(int(values.pop("cores")), **{n: float(v) for n, v in values.items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return peaks if all(value > 0 for value in asdict(peaks).values()) else None


def _measure(cores: int) -> Peaks:
    def flops() -> float:
        return _native.measure_flops(_SECONDS)

    def copied() -> float:
        return _native.measure_copy(_COPIED, _SECONDS)

    core_flops, core_copies = flops(), copied()
    return Peaks(
        cores,
        core_flops,
        core_copies,
        _together(flops, cores, core_flops),
        _together(copied, cores, core_copies),
    )


def _together(measure: Callable[[], float], cores: int, core_copies: float) -> float:
    """The sum over all cores running concurrently; at least that of one core alone."""
    with ThreadPoolExecutor(cores) as threads:
        return max(core_copies, sum(threads.map(lambda _: measure(), range(cores))))


def _cpu_name() -> str:
    with suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith(("model name", "CPU part")):
                return line.partition(":")[2].strip()
    return platform.machine()


# --- GPUs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DevicePeak:
    """Floating-point operations and bytes per second of a GPU, by its data sheet.

    The operations are those of dense 16-bit matmuls on tensor cores with f32 sums.
    """

    flops: float
    bytes: float


# Part of the model name, the more specific ones first.
_DEVICE_PEAKS: tuple[tuple[str, DevicePeak], ...] = (
    ("B200", DevicePeak(2250e12, 8.0e12)),
    ("H200", DevicePeak(989e12, 4.8e12)),
    ("H100 PCIe", DevicePeak(756e12, 2.0e12)),
    ("H100 NVL", DevicePeak(835e12, 3.9e12)),
    ("H100", DevicePeak(989e12, 3.35e12)),
    ("A100-SXM4-80GB", DevicePeak(312e12, 2.04e12)),
    ("A100", DevicePeak(312e12, 1.55e12)),
    ("L40S", DevicePeak(362e12, 0.86e12)),
    ("L4", DevicePeak(121e12, 0.3e12)),
    ("A10", DevicePeak(125e12, 0.6e12)),
)


def find_peak(model: str) -> DevicePeak | None:
    """The peak of a device such as "NVIDIA H200"; None for unknown ones and the simulator."""
    return next((peak for name, peak in _DEVICE_PEAKS if name in model), None)
