"""Device models: the rates and fixed costs by which the time of a device is predicted.

`h200` is measured: rates that kernels of Nova reach, and the boundaries between launches. `h100`
and `a100` have the published peaks of their makers, times the part of the peak that is reached on
the H200. A machine with separate matrix and vector cores is `typed_cores`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nova.core.suggest import did_you_mean
from nova.errors import AttributeValueError


@dataclass(frozen=True)
class DeviceModel:
    """A GPU. Rates are per nanosecond and for the whole device, times in nanoseconds."""

    name: str
    processors: int
    matrix_flops: float
    """Operations of matrix instructions on 16-bit floats."""
    vector_flops: float
    """Operations of f32 kernels without matrix instructions."""
    memory_bytes: float
    cache_bytes: float
    """Bytes from the L2 cache, by kernels that move no more than `cache_size`."""
    cache_size: int
    processor_bytes: float
    """Bytes that one multiprocessor can move."""
    boundary: float
    """From the end of a launch to the start of the next, in a graph."""
    dependent_boundary: float
    """The same where the next one is a dependent launch."""
    latency: float
    """Of a kernel whose work takes no time: it starts, loads, stores and ends."""
    matrix_latency: float
    """The same with matrix instructions: the pipeline of copies fills and drains."""
    call: float
    """The host's time of a call: a program is not faster than that."""
    block_flops: float = 110
    """Operations of one block of an f32 kernel with little work: shared memory bounds it."""
    task_matrix_flops: float = 365e3
    """Operations of matrix instructions in tasks of a persistent kernel: `mma.sync` alone."""
    operand_bytes: float = 5800
    """Bytes of operands that all of these tasks load: small tiles load each element often."""
    task_vector_flops: float = 18e3
    """Operations of f32 tasks without matrix instructions: their tiles are of 256 threads."""
    hop: float = 700
    """From the end of a task to the start of one on another multiprocessor that waits for it."""
    task_latency: float = 900
    """Of a task of a persistent kernel whose work takes no time; twice that if it is the only one
    of its launch, which then often has several steps."""
    crowding: float = 1.2
    """The time of a launch of many tasks, from the first start to the last end, per time of a task:
    each multiprocessor gets one of them, but they do not start and end together."""
    resident: int = 2
    """Blocks of a persistent kernel on each multiprocessor."""
    cooperative_call: float = 4500
    """From one launch of a persistent kernel to the next, without its tasks."""
    iteration: float = 3800
    """Of a loop that the device decides, without the kernels of its body."""
    branch: float = 8100
    """Of a branch that the device decides, without its kernels."""

    @property
    def has_dependent_launches(self) -> bool:
        return self.dependent_boundary < self.boundary


H200 = DeviceModel(
    name="h200",
    processors=132,
    matrix_flops=787e3,
    vector_flops=34e3,
    memory_bytes=4100,
    cache_bytes=5800,
    cache_size=50 << 20,
    processor_bytes=112,
    boundary=600,
    dependent_boundary=250,
    latency=1640,
    matrix_latency=1900,
    call=1900,
)

# NVIDIA's data sheets: dense bf16, f32, memory; of which the H200 above reaches 0.8, 0.51 and 0.85.
_REACHED_MATRIX, _REACHED_VECTOR, _REACHED_MEMORY = 0.8, 0.51, 0.85

H100 = DeviceModel(
    name="h100",
    processors=132,
    matrix_flops=989e3 * _REACHED_MATRIX,
    vector_flops=67e3 * _REACHED_VECTOR,
    memory_bytes=3350 * _REACHED_MEMORY,
    cache_bytes=5800,
    cache_size=50 << 20,
    processor_bytes=112,
    boundary=600,
    dependent_boundary=250,
    latency=1640,
    matrix_latency=1900,
    call=1900,
)

A100 = DeviceModel(
    name="a100",
    processors=108,
    matrix_flops=312e3 * _REACHED_MATRIX,
    vector_flops=19.5e3 * _REACHED_VECTOR,
    memory_bytes=2039 * _REACHED_MEMORY,
    cache_bytes=3500,
    cache_size=40 << 20,
    processor_bytes=64,
    boundary=1000,
    dependent_boundary=1000,  # it has no dependent launches
    latency=2000,
    matrix_latency=2300,
    call=1900,
)

DEVICE_MODELS = {model.name: model for model in (H200, H100, A100)}
"""By name."""


def find_model(name: str) -> DeviceModel:
    """The model with this name; AttributeValueError for others."""
    if name not in DEVICE_MODELS:
        raise AttributeValueError(
            f"there is no device model {name!r}",
            hint=did_you_mean(name, DEVICE_MODELS, "the models are {}"),
        )
    return DEVICE_MODELS[name]


@dataclass(frozen=True)
class TypedCores:
    """A machine with cores of several types; a task runs on one core of its type.

    Rates are those of one core, per nanosecond; `overhead` is the nanoseconds to start a task.
    """

    cores: Mapping[str, int]
    matrix_flops: float = 4096.0
    vector_flops: float = 256.0
    core_bytes: float = 32.0
    overhead: float = 250.0
