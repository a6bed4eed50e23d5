"""Compile settings: one record, from arguments and knobs, part of every cache key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from nova import knobs
from nova.core.records import record


@record
class Settings:
    """The settings of one compile.

    target       the machine to compile for, as `nova.core.targets.parse_target` takes it.
    fast_math    whether float arithmetic may be reassociated (docs/fast-math.md).
    serial_work  scalar operations below which ops share one kernel without tiles.
    tile_work    scalar operations that one tile should have.
    task_ns      nanoseconds of estimated work that one task should have.
    max_workspace  bytes of workspace that a run may use; None for no limit.
    schedules    schedule overrides, as the pass `choose-schedules` takes them: results of tuning.
    tune         time limit in seconds for trying schedules on this machine; 0 for none.
    tf32         whether devices may round the operands of f32 matmuls to 11 bits (TF32).
    matmul_precision  how devices multiply f32: `highest` exactly, `high` by three TF32 matmuls,
                 `tf32` by one, as the setting `tf32`.
    gpu_gemm     which GEMM devices use: `auto`, `mma`, `wgmma`, or `wgmma` with a tile.
    gpu_attention  which attention devices use: `auto`, `mma`, `wgmma`, or `wgmma` with a tile.
    launch       how the launches of a device program run: `graph` or `persistent`; `auto` is
                 replaced by one of them before a compile.
    cubin        whether device code is also assembled, which needs `ptxas`.
    winograd     which 3x3 convolutions CPUs compute by Winograd's algorithm: `auto`, `on`, `off`.
    cores        the threads of runs on this machine, as a power of two, where they are many; 1 for
                 few, and for other targets than `cpu`.
    specialize   combinations of sizes of a symbolic program that get code of their own, in the
                 order of its dims.
    """

    target: str = "cpu"
    fast_math: bool = False
    serial_work: int = 20_000
    tile_work: int = 65_536
    task_ns: int = 50_000
    max_workspace: int | None = None
    schedules: tuple[str, ...] = ()
    tune: float = 0.0
    cubin: bool = False
    tf32: bool = False
    gpu_gemm: str = "auto"
    gpu_attention: str = "auto"
    specialize: tuple[tuple[int, ...], ...] = ()
    matmul_precision: str = "highest"
    launch: str = "graph"
    cores: int = 1
    winograd: str = "auto"

    def items(self) -> dict[str, str]:
        """The settings as text, for the cache key and the manifest."""
        values = {f.name: str(getattr(self, f.name)) for f in fields(self)}
        values["schedules"] = " ".join(self.schedules)
        values["specialize"] = " ".join(",".join(map(str, sizes)) for sizes in self.specialize)
        # Defaults of newer settings are left out: files and cache keys stay as they were.
        unset = {"specialize": "", "matmul_precision": "highest", "launch": "graph", "cores": "1"}
        unset["winograd"] = "auto"
        return {k: v for k, v in values.items() if k not in unset or v != unset[k]}

    @staticmethod
    def of(items: Mapping[str, Any]) -> Settings:
        """The settings from the output of `items`, e.g. in a manifest."""
        most = str(items["max_workspace"])
        return Settings(
            str(items["target"]),
            str(items["fast_math"]) == "True",
            int(items["serial_work"]),
            int(items["tile_work"]),
            int(items["task_ns"]),
            None if most == "None" else int(most),
            # Files from before tuning existed have neither.
            tuple(str(items.get("schedules", "")).split()),
            float(items.get("tune", 0.0)),
            str(items.get("cubin", False)) == "True",
            str(items.get("tf32", False)) == "True",
            str(items.get("gpu_gemm", "auto")),
            str(items.get("gpu_attention", "auto")),
            tuple(
                tuple(map(int, sizes.split(",")))
                for sizes in str(items.get("specialize", "")).split()
            ),
            str(items.get("matmul_precision", "highest")),
            str(items.get("launch", "graph")),
            int(items.get("cores", 1)),
            str(items.get("winograd", "auto")),
        )


def current_settings(
    target: str | None = None,
    fast_math: bool | None = None,
    max_workspace: int | str | None = None,
    tune: float | None = None,
    cubin: bool | None = None,
    launch: str | None = None,
) -> Settings:
    """The settings from arguments and knobs; None takes the value of the knob."""
    if max_workspace is None:
        max_workspace = knobs.get("max_workspace")
    return Settings(
        target=target or knobs.get("target"),
        fast_math=knobs.get("fast_math") if fast_math is None else bool(fast_math),
        serial_work=knobs.get("serial_work"),
        tile_work=knobs.get("tile_work"),
        task_ns=knobs.get("task_ns"),
        max_workspace=knobs.KNOBS["max_workspace"].check(max_workspace, "max_workspace"),
        tune=knobs.get("tune") if tune is None else knobs.KNOBS["tune"].check(tune, "tune"),
        cubin=knobs.get("cubin") if cubin is None else bool(cubin),
        tf32=knobs.get("tf32"),
        matmul_precision=knobs.get("matmul_precision"),
        gpu_gemm=knobs.get("gpu_gemm"),
        gpu_attention=knobs.get("gpu_attention"),
        launch=knobs.KNOBS["launch"].check(launch or knobs.get("launch"), "launch"),
        winograd=knobs.get("winograd"),
        cores=_many_cores() if (target or knobs.get("target")) == "cpu" else 1,
    )


_MANY_CORES = 8


def _many_cores() -> int:
    """The threads of the process as a power of two; 1 for less than `_MANY_CORES`."""
    threads = int(knobs.get("threads"))
    return 1 << threads.bit_length() - 1 if threads >= _MANY_CORES else 1
