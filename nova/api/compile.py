"""`nova.compile`: compiles a graph to a `Compiled` program, through the caches or the stages.

This is the top-level entry point: it builds the plan and gets its program from
`program_cache.py`. Only a new plan loads MLIR and LLVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nova import knobs
from nova.api.compiled import Compiled
from nova.api.precision import in_precision, parse_precision
from nova.api.program_cache import (
    PROGRAMS,
    CompileJob,
    cache_statistics,
    clear_memory_cache,
    compiler_version,
    memory_cache_info,
)
from nova.api.specialize import read_specialize
from nova.core.location import user_location
from nova.core.settings import Settings, current_settings
from nova.core.targets import parse_target
from nova.core.user_facing import user_facing
from nova.errors import (
    AttributeValueError,
    ConcreteValueError,
    GraphError,
    LoweringError,
    NovaError,
    TargetError,
)
from nova.graph.autodiff import gradients
from nova.graph.order import topological
from nova.graph.tensor import Tensor, set_evaluator
from nova.ops.loops.control import CALL
from nova.plan import Plan, build_plan, parse_plan
from nova.runtime.devices import explain_absent, local_architecture
from nova.runtime.weights import ParamValues

__all__ = [
    "cache_statistics",
    "clear_memory_cache",
    "compile",
    "compile_plan",
    "compiler_version",
    "evaluate",
    "memory_cache_info",
]

RUN_MODES = ("native", "sim")


@user_facing
def compile(
    outputs: Tensor | Sequence[Tensor],
    *,
    inputs: Sequence[Tensor] = (),
    params: Sequence[Tensor] = (),
    include_backward: bool = False,
    updates: Mapping[Tensor, Tensor] | None = None,
    target: str | None = None,
    fast_math: bool | None = None,
    max_workspace: int | str | None = None,
    freeze: bool = False,
    tune: float | None = None,
    precision: str | None = None,
    matmul_precision: str | None = None,
    run_mode: str = "native",
    sim_cores: int = 64,
    sim_seed: int = 0,
    specialize: Sequence[Any] | None = None,
    launch: str | None = None,
) -> Compiled:
    """Compile a program that computes `outputs` from `inputs` and `params`.

    With `include_backward` the gradients of the params follow the (one, scalar) output. `updates`
    maps params to their new values: a run changes those arrays in place. `target` is `cpu`
    (this machine), a CPU such as `x86_64-v3` or `haswell`, `cuda` (the GPU of this machine) or a
    GPU such as `cuda:sm_80` (docs/devices.md). `fast_math` lets LLVM reassociate float arithmetic
    (docs/fast-math.md). `max_workspace` limits the workspace of a run, in bytes or as "512M":
    the compiler trades speed for it (it rematerializes values and forms smaller kernels, so the
    last bit of a result may differ), or raises WorkspaceError with the smallest limit that works.
    With `freeze` the current values of the params become constants of the program: that is faster,
    and the program takes only the inputs (docs/deploying.md). `tune` is the time limit in seconds
    for trying schedules on this machine (docs/tuning.md). With `precision` "bf16" or "f16" an
    inference program computes in that dtype instead of f32: the params are converted now, once;
    inputs and outputs keep their dtypes (docs/deploying.md). `matmul_precision` says how a device
    multiplies f32: "highest" exactly, "high" by three tensor-core matmuls, "tf32" by one, with 11
    bits of each factor (docs/devices.md). `run_mode="sim"` has two meanings. A
    program for a GPU runs on the GPU simulator, on the CPU. A program for the CPU runs its tasks
    sequentially, in the order in which `sim_cores` cores would start them; its `simulation` is
    their timeline (docs/tracing.md). `specialize` lists sizes of the dims of a program with
    symbolic sizes that get code of their own in it, such as `[128]` or `[{"B": 1, "S": 128}]`
    (docs/dynamic-shapes.md). `launch` says how a program for a GPU runs its kernels: "graph", as
    nodes of a CUDA graph, "persistent", as tasks of one resident kernel, or "auto", the one that
    is predicted to be faster (docs/persistent-kernels.md).
    """
    check_run_mode(run_mode)
    if freeze and updates:
        raise GraphError(
            "freeze makes constants of the params, and updates changes them",
            where=str(user_location()),
            hint="freeze the program that uses the trained params, not the one that trains them",
        )
    results = [outputs] if isinstance(outputs, Tensor) else _as_tensors("outputs", outputs)
    inputs, params = _as_tensors("inputs", inputs), _as_tensors("params", params)
    if updates is not None and not isinstance(updates, Mapping):
        raise GraphError(
            f"updates is a {type(updates).__name__}, not a dict of params and their new values",
            hint="write updates={w: w - 0.1 * w.grad}",
        )
    if include_backward:
        if len(results) != 1:
            raise GraphError(
                f"include_backward with {len(results)} outputs: it takes one scalar",
                hint="compile the loss, or make gradients with nova.backward",
            )
        # Built here and not read from `.grad`, which may hold the sum over several losses.
        results += gradients(results[0], params)
    if precision is not None:
        if include_backward or updates:
            raise GraphError(
                "precision is for inference, and the program trains",
                where=str(user_location()),
                hint='nova.train_step(..., precision="bf16") keeps the params in f32',
            )
        results, params = in_precision(results, inputs, params, parse_precision(precision))
    if freeze:
        params = ()  # leaves that are not arguments are constants
    plan = build_plan(results, inputs, params, updates)
    options = {} if matmul_precision is None else {"matmul_precision": matmul_precision}
    with knobs.override(**options):
        program = compile_plan(
            plan,
            target=target,
            fast_math=fast_math,
            max_workspace=max_workspace,
            tune=tune,
            run_mode=run_mode,
            specialize=specialize,
            launch=launch,
        )
    if run_mode == "sim" and not program.is_on_device:
        program = program.simulated(sim_cores, sim_seed)
    if not params:
        return program
    # Hold the arrays, not the tensors: tensors would keep the graph of the gradients alive.
    return carrying(program, [p.data for p in params])


def carrying(
    program: Compiled, arrays: Sequence[Any], fetch: Callable[[], None] | None = None
) -> Compiled:
    """The program with the arrays of the graph's params; `fetch` updates them from the device."""
    return program.with_values(ParamValues(program._values.params, arrays, "graph", fetch))


def _as_tensors(name: str, values: Any) -> list[Tensor]:
    """The tensors of an argument of `compile`; GraphError if it is not a list of them."""
    if isinstance(values, Tensor | str):
        raise GraphError(
            f"{name} is of type {type(values).__name__}, not a list of tensors",
            hint=f"write {name}=[...]",
        )
    if callable(values) or not isinstance(values, Iterable):
        raise GraphError(
            f"{name} is of type {type(values).__name__}, not a list of tensors",
            hint=_hint_for(values),
        )
    tensors = list(values)
    for i, value in enumerate(tensors):
        if not isinstance(value, Tensor):
            raise GraphError(
                f"{name.removesuffix('s')} {i} is a {type(value).__name__}, not a Tensor",
                hint=_hint_for(value),
            )
    return tensors


def _hint_for(value: Any) -> str:
    if callable(value):
        return (
            "nova.jit compiles a function or a model when it is called; nova.compile takes the "
            "result of a call: nova.compile(model(x), inputs=[x])"
        )
    return "pass the tensors themselves, made with nova.tensor(...) or computed from them"


@user_facing
def compile_plan(
    plan: Plan | str,
    *,
    target: str | None = None,
    fast_math: bool | None = None,
    max_workspace: int | str | None = None,
    tune: float | None = None,
    name: str | None = None,
    run_mode: str = "native",
    device: str | None = None,
    specialize: Sequence[Any] | None = None,
    launch: str | None = None,
) -> Compiled:
    """Compile a plan, or the text of a plan. `name` is its name in log lines.

    `specialize` and `launch` are those of `nova.compile`. With `run_mode="sim"` a device program
    runs on the simulator. `device` is the name of the device to run on; without a target the
    program is compiled for that device.
    """
    is_text = isinstance(plan, str)
    if isinstance(plan, str):
        plan = parse_plan(plan)
    if target is None and device is not None:
        target = f"cuda:{local_architecture(device)}"
    settings = current_settings(local_target(target), fast_math, max_workspace, tune, launch=launch)
    if launch == "persistent" and not parse_target(settings.target).is_device:
        raise TargetError(
            f"launch='persistent' is for devices, and the target is {target or 'cpu'}",
            hint="give a target such as cuda, or leave launch out",
        )
    if specialize is not None:
        settings = replace(settings, specialize=read_specialize(specialize, plan.dims))
    check_target(settings.target)
    chosen = device_of(settings, run_mode)
    device = chosen and (device or chosen)

    def program(launch: str) -> Compiled:
        launched = replace(settings, launch=launch)
        job = CompileJob.of_plan(plan, launched, device, foreign=is_text)
        return PROGRAMS.get(job, name)

    return auto_launch(program) if settings.launch == "auto" else program(settings.launch)


def auto_launch(compile_as: Callable[[str], Compiled]) -> Compiled:
    """The program with the launch that is predicted to be faster; a graph where both are equal."""
    program = compile_as("graph")
    choice = program.launch_choice
    if choice is None or choice.launch == "graph":
        return program
    try:
        return compile_as(choice.launch)
    except LoweringError as error:
        program._refuse_persistent(error.what)
        return program


def compile_settings(
    plan: Plan,
    settings: Settings,
    name: str | None,
    device: str | None = None,
    *,
    foreign: bool = False,
) -> Compiled:
    """Compile a plan with settings from another source, such as a file.

    A `foreign` plan came as text; it is compiled in a child process.
    """
    return PROGRAMS.get(CompileJob.of_plan(plan, settings, device, foreign=foreign), name)


def compile_text(text: str, stage: str, settings: Settings, name: str) -> Compiled:
    """Compile the text of an MLIR stage from a file; the program has no plan."""
    return PROGRAMS.get(CompileJob(stage, text, settings, None), name)


@user_facing
def check_target(target: str) -> None:
    """TargetError at the user's line unless `target` names a machine to compile for and run on."""
    machine, local = parse_target(local_target(target) or target), parse_target("cpu")
    if machine.arch != local.arch and not machine.is_device:
        raise TargetError(
            f"target {target!r}: what compile() gives runs here, and this is {local.arch}",
            hint=f"nova.translate(program, targets={target!r}) writes a file",
        )


def device_of(settings: Settings, run_mode: str) -> str | None:
    """The name of the device that programs with these settings run on; None for the CPU."""
    if not parse_target(settings.target).is_device:
        return None
    return "sim" if run_mode == "sim" else "cuda"


def local_target(target: str | None) -> str | None:
    """`cuda` is the GPU of this machine: only its driver knows the architecture."""
    if target != "cuda":
        return target
    try:
        return f"cuda:{local_architecture()}"
    except NovaError as error:
        raise explain_absent(error).located(str(user_location())) from None


def check_run_mode(run_mode: str) -> None:
    """AttributeValueError at the user's line unless `run_mode` is valid."""
    if run_mode not in RUN_MODES:
        raise AttributeValueError(
            f"run_mode is {run_mode!r}",
            where=str(user_location()),
            hint=f"it is one of {', '.join(RUN_MODES)}",
        )


# --- immediate evaluation -------------------------------------------------------------------------


def evaluate(output: Tensor) -> np.ndarray:
    """The value of a tensor: compiles the graph it needs, with the data of its leaves as inputs.

    Leaves are inputs and not literals, so the same computation on other data hits the cache.
    """
    order = topological([output])
    unknown = next((t for t in order if t.is_placeholder), None)
    if unknown is not None:
        raise ConcreteValueError(
            f"{output!r} has no value yet: it depends on {unknown!r}, whose data come when the "
            "program runs",
            where=str(user_location()),
            hint="use nova.where instead of a branch, and shapes instead of values",
        )
    files = {id(t.inputs[0]) for t in order if t.op is CALL}  # constants of a program
    leaves = [t for t in order if t.is_leaf and t.shape != () and id(t) not in files]
    plan = build_plan([output], leaves)
    # Runs once: tuning time would not be recovered.
    return compile_plan(plan, tune=0).run([leaf.data for leaf in leaves])


set_evaluator(evaluate)
