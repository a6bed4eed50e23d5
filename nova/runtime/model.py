"""`Model`: a program from a file, without the compiler: run, inspect and save it.

`nova.load` creates one, and `Compiled` of `nova.compile` is one that also knows its plan. Needs
neither MLIR nor LLVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from nova import _native, knobs
from nova.artifact.format import Artifact
from nova.artifact.tables import KernelSpec
from nova.core.frozen_attributes import Sealed
from nova.core.location import user_location
from nova.core.log import enabled
from nova.core.settings import Settings
from nova.core.signature import Signature
from nova.core.user_facing import unknown_keyword, user_facing_class
from nova.errors import AttributeValueError, PersistentLaunchError, WeightsError
from nova.runtime import output_pool
from nova.runtime.executor import Executable, LoggedProgram
from nova.runtime.futures import RunFuture, submit
from nova.runtime.gpu_executor import DeviceExecutable, values_on
from nova.runtime.options import check_place
from nova.runtime.ring import SLOTS, Server
from nova.runtime.saving import Saver, Weights
from nova.runtime.signature import read_signature
from nova.runtime.streams import NovaStream, current_stream
from nova.runtime.symbolic_program import CacheInfo, SymbolicProgram
from nova.runtime.threads import settle
from nova.runtime.weights import ParamValues, listed, no_values

if TYPE_CHECKING:
    from nova.runtime.launch_choice import LaunchChoice
    from nova.tracing.costs import Speeds
    from nova.tracing.devices.predict import DevicePrediction
    from nova.tracing.devices.typed_cores import CoresSimulation
    from nova.tracing.schedule_sim import Simulation

_RUN_OPTIONS = ("inputs", "params", "out", "timeout", "outputs")


@user_facing_class
class Model(Sealed):
    """A callable program and the values of its params.

    Threads may share a model; runs that update the same params must not overlap (ArrayInUseError).
    """

    def __init__(
        self,
        executable: Executable,
        origin: str,
        name: str = "program",
        values: ParamValues | None = None,
    ):
        settle()
        output_pool.settle()
        self._executable = executable
        self._values = values_on(executable, values or no_values(executable.manifest))
        self.name = name
        if executable.program.label is None:
            executable.program.label = name  # for traces; others may share the program
        self.origin = origin
        """The origin: `compiled`, `memory`, `disk` (the cache), or `file`."""
        # Logging and checking of runs are decided here, so that other runs pay nothing.
        self._program = self._observed(
            LoggedProgram(executable, name) if enabled("run") else executable.program
        )
        args = executable.manifest.args
        self._input_count = sum(spec.role == "input" for spec in args)
        self._has_params = self._input_count < len(args)
        self._seal()

    def _observed(self, program: Any) -> Any:
        """The function that is called for a run, if runs are observed."""
        return program

    # --- running --------------------------------------------------------------------------------

    def run(
        self,
        inputs: Sequence[Any] = (),
        params: Sequence[Any] | None = None,
        out: Any = None,
        timeout: float | None = None,
        outputs: str | None = None,
        **unknown: Any,
    ) -> Any:
        """Run: arrays in the order of the signature; one array out, or a tuple.

        Without `params` the stored values are used. `out` gives arrays to write results into.
        Updated params are changed in place. After `timeout` seconds the run is stopped between two
        tasks, with RunTimeoutError. On a device, results are where the inputs are, unless `outputs`
        is "host" or "device"; a run that timed out continues there, and keeps its arrays until it
        has ended. Loops of a persistent kernel are stopped.
        """
        if unknown:
            raise unknown_keyword("run()", unknown, _RUN_OPTIONS)
        if params is None:
            params = self._carried() if self._has_params else ()
        if timeout is not None and self.is_on_device:
            return self._run_within(timeout, inputs, params, out, outputs)
        if outputs is None:
            return self._program.run(inputs, params, out, timeout)
        check_place(outputs)
        return self._program.run(inputs, params, out, timeout, outputs=outputs)

    def _run_within(
        self, timeout: float, inputs: Any, params: Any, out: Any, outputs: str | None
    ) -> Any:
        """Submit the run and wait up to the timeout: most kernels of a device cannot be stopped.

        Host regions between device kernels are stopped between two tasks, and loops of a persistent
        kernel between two iterations.
        """
        if not all(isinstance(arrays, list | tuple) for arrays in (inputs, params)):
            return self._program.run(inputs, params, out)  # raises
        if outputs is not None:
            check_place(outputs)
        future = submit(self._program, [*inputs, *params], out, None, timeout, outputs)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
        finally:
            del future  # it holds the error, whose traceback holds this frame

    def submit(
        self,
        *arrays: Any,
        out: Any = None,
        stream: NovaStream | None = None,
        timeout: float | None = None,
        outputs: str | None = None,
        **unknown: Any,
    ) -> RunFuture:
        """Start a run and return at once; arrays as in a call.

        The arrays are kept alive until the run has ended, and must not be changed before. Runs of
        one stream (this or that of a `with` block) run one after the other; others overlap, and an
        array that one of them writes cannot be used by another (ArrayInUseError). On a device
        `outputs` says where results are, as in `run`, and a run that was enqueued cannot be
        stopped.
        """
        if unknown:
            raise unknown_keyword("submit()", unknown, ("out", "stream", "timeout", "outputs"))
        if outputs is not None:
            check_place(outputs)
        if self.simulation is not None:
            raise AttributeValueError(
                "a program with run_mode='sim' runs on the calling thread: it cannot be submitted",
                where=str(user_location()),
                hint="call it, or compile it without run_mode",
            )
        if self._has_params and len(arrays) == self._input_count:
            arrays += self._carried()
        stream = stream if stream is not None else current_stream()
        if stream is None:
            return submit(self._program, arrays, out, None, timeout, outputs)
        return stream.note(submit(self._program, arrays, out, stream._native, timeout, outputs))

    def __call__(
        self, *arrays: Any, out: Any = None, outputs: str | None = None, **unknown: Any
    ) -> Any:
        """Run with inputs followed by params, or with the inputs alone."""
        if unknown:
            names = [spec.name for spec in self._executable.manifest.args]
            raise unknown_keyword("a program", unknown, ("out", "outputs"), by_position=names)
        if self._has_params and len(arrays) == self._input_count:
            arrays += self._carried()
        if outputs is not None:
            check_place(outputs)
            return self._program.run(arrays, (), out, outputs=outputs)
        if out is None:  # a call without keywords is a third faster
            return self._program(*arrays)
        return self._program(*arrays, out=out)

    def serve(self, *, slots: int = SLOTS) -> Server:
        """Keep the program on its device, where it answers calls: `with program.serve() as server`.

        `server(*inputs)` gives the results of a call, from any thread, without a launch. The
        program has launch="persistent", and no params that a run changes. Until the server is
        closed, other programs wait for the device. `slots` calls may be under way, a power of two.
        """
        executable = self._executable
        refusal = "it does not run on a device"
        if isinstance(executable, DeviceExecutable):
            refusal = executable.refuses_ring()
            if not refusal and any(spec.donated for spec in executable.manifest.args):
                refusal = "a run changes its params"
        if refusal or not isinstance(executable, DeviceExecutable):
            raise PersistentLaunchError(
                f"the program cannot serve: {refusal}",
                where=str(user_location()),
                hint="programs for a device that are compiled with launch='persistent' serve, if "
                "they have static sizes and no loops: docs/persistent-kernels.md",
            )
        if slots < 2 or slots & (slots - 1):
            raise AttributeValueError(
                f"slots is {slots}", where=str(user_location()), hint="it is a power of two"
            )
        return Server(executable.ring(slots), self._carried)

    def forward(self, *inputs: Any, out: Any = None, **unknown: Any) -> Any:
        """Run with the stored param values; WeightsError if there are none."""
        if unknown:
            raise unknown_keyword("forward()", unknown, ("out",))
        if not self._values.is_complete:
            raise WeightsError(
                f"the program carries no value for {listed(self._values.missing)}",
                where=str(user_location()),
                hint="run(inputs, params), nova.load(path, weights=...), or save it with "
                "weights='embed'",
            )
        if out is None:
            return self._program(*inputs, *self._values.get())
        return self._program(*inputs, *self._values.get(), out=out)

    def _carried(self) -> tuple[Any, ...]:
        """All values; empty if some are missing, which the call reports as missing arguments."""
        return self._values.get() if self._values.is_complete else ()

    # --- inspection -----------------------------------------------------------------------------

    simulation: Simulation | None = None
    """With run_mode="sim": the timeline whose order runs follow."""

    @overload
    def simulate(
        self,
        cores: int = 64,
        seed: int = 0,
        policy: str | None = None,
        speeds: Speeds | None = None,
    ) -> Simulation: ...
    @overload
    def simulate(self, *, device: str) -> DevicePrediction: ...
    @overload
    def simulate(self, cores: Mapping[str, int]) -> CoresSimulation: ...
    def simulate(
        self,
        cores: int | Mapping[str, int] = 64,
        seed: int = 0,
        policy: str | None = None,
        speeds: Speeds | None = None,
        device: str | None = None,
    ) -> Simulation | DevicePrediction | CoresSimulation:
        """Simulate this program on `cores` cores with the cost model; nothing is run.

        A seed other than 0 picks among the ready tasks at random. `speeds` are those of one core;
        the defaults are the same on every machine.

        A program for a device has other simulations: `device="h200"` (or `h100`, `a100`) predicts
        the time of its launches there, and `cores={"matrix": 24, "vector": 48}` schedules its
        tasks on cores of these types.
        """
        from nova.tracing.schedule_sim import simulate  # only on request

        if self.is_on_device and (device is not None or not isinstance(cores, int)):
            return self._simulate_device(cores, device)
        if self.is_on_device or device is not None or not isinstance(cores, int):
            text = "a program for a device has no tasks of CPU cores to simulate"
            hint = 'simulate(device="h200") predicts its time; or compile it for the CPU, too'
            if not self.is_on_device:
                text = "a program for the CPU has no launches on a device to simulate"
                hint = 'compile it for one, such as target="cuda:sm_90a"'
            raise AttributeValueError(text, where=str(user_location()), hint=hint)
        self._check_static()
        return simulate(self._executable.tables, cores, seed, policy or knobs.get("policy"), speeds)

    def _check_static(self) -> None:
        if self.signature.dims:
            raise AttributeValueError(
                "a program with symbolic sizes has no tasks before a call gives the sizes",
                where=str(user_location()),
                hint="simulate the program of one size: compile it with static shapes",
            )

    def _simulate_device(
        self, cores: int | Mapping[str, int], device: str | None
    ) -> DevicePrediction | CoresSimulation:
        from nova.tracing.devices.models import TypedCores, find_model  # only on request
        from nova.tracing.devices.predict import predict
        from nova.tracing.devices.typed_cores import simulate_cores

        self._check_static()
        tables = self._executable.tables
        if not isinstance(cores, int):
            return simulate_cores(tables, TypedCores(cores))
        if not isinstance(device, str):
            raise AttributeValueError(
                f"device is {device!r}, not the name of a device model",
                where=str(user_location()),
                hint='it is a text, such as "h200"',
            )
        return predict(tables, find_model(device), self.name)

    @cached_property
    def signature(self) -> Signature:
        """Names, shapes, dtypes and roles of arguments and results."""
        executable = self._executable
        return read_signature(executable.manifest, getattr(executable.program, "shapes", None))

    @property
    def params(self) -> dict[str, np.ndarray]:
        """The stored param values, by name.

        Those of a file are read-only views of its memory, except params that runs update: they are
        private copies. Those of a graph are the arrays of its tensors.
        """
        return self._values.named()

    @property
    def carried(self) -> ParamValues:
        """The values of params, including missing ones, in the order of the signature."""
        return self._values

    @property
    def artifact(self) -> Artifact:
        """The opened file of the program; the tools describe it."""
        return self._executable.artifact

    @property
    def is_on_device(self) -> bool:
        """Whether it runs on a GPU, real or simulated."""
        return self._executable.spec.is_device

    @property
    def native_device(self) -> _native.Device | None:
        """The device it is loaded for; None for the CPU, and for a missing device."""
        return getattr(self._executable, "device", None)

    @property
    def workspace_size(self) -> int:
        """Bytes of workspace that a run uses."""
        return self._executable.workspace_size

    def cache_info(self) -> CacheInfo:
        """Of a program with symbolic sizes: calls whose sizes were kept, others, and sizes kept."""
        return self._symbolic.cache_info()

    def workspace_for(self, **sizes: int) -> int:
        """Bytes of workspace that a run with these sizes of the dims uses."""
        program = self._symbolic
        names = [dim.name for dim in program.dims]
        if sizes.keys() != set(names):
            raise AttributeValueError(
                f"the dims of the program are {', '.join(names)}, not {', '.join(sizes) or 'none'}",
                where=str(user_location()),
            )
        return program.program_for(tuple(sizes[name] for name in names)).workspace_size

    @property
    def _symbolic(self) -> SymbolicProgram:
        program = self._executable.program
        if not isinstance(program, SymbolicProgram):
            raise AttributeValueError(
                "the program has static sizes",
                where=str(user_location()),
                hint="nova.dim makes a symbolic size",
            )
        return program

    @property
    def target(self) -> str:
        """The target of the selected code."""
        return self._executable.spec.target

    @property
    def launch(self) -> str:
        """How its kernels are launched on a device: `graph` or `persistent`."""
        return Settings.of(self._executable.spec.options).launch

    @cached_property
    def launch_choice(self) -> LaunchChoice | None:
        """The launch that `launch="auto"` takes, and why; None on a CPU, or of symbolic sizes."""
        from nova.runtime.launch_choice import choose_launch  # only on request

        if not self.is_on_device or self.signature.dims:
            return None
        return choose_launch(self._executable.tables, self.target)

    def _refuse_persistent(self, reason: str) -> None:
        """Let `launch_choice` say why `launch="auto"` took the graph all the same."""
        from nova.runtime.launch_choice import LaunchChoice  # only on request

        vars(self)["launch_choice"] = LaunchChoice("graph", reason)

    @property
    def why(self) -> str:
        """The selected variant of the file, and why better ones do not run: one line."""
        return self._executable.why

    @property
    def kernels(self) -> tuple[KernelSpec, ...]:
        """Name, tiles, core type, cost and user's line of every kernel."""
        return self._executable.tables.kernels

    @property
    def stages(self) -> Mapping[str, str]:
        """The text of every stage, from plan to LLVM IR."""
        return self._executable.artifact.stages()

    def __repr__(self) -> str:
        signature = self.signature
        arguments = ", ".join(f"{a.name}: {a.type}" for a in signature.arguments)
        results = ", ".join(str(a.type) for a in signature.outputs)
        title = f"{type(self).__name__} ({arguments}) -> ({results})"
        return f"<{title} for {self.target}, {self.origin}>"

    # --- saving ---------------------------------------------------------------------------------

    def save(
        self,
        path: str | Path,
        weights: str | None = None,
        *,
        params: Mapping[str, Any] | Sequence[Any] | None = None,
        key: str | Path | None = None,
        drop_signature: bool = False,
    ) -> None:
        """Write the program as one file, atomically.

        `weights="embed"` puts the values of the params into it, `"external"` into a safetensors
        file next to it; a program that was loaded with weights keeps its kind. The values are
        `params`, by name or in order, and the stored values. `key` is the file of a private key to
        sign with (docs/deploying.md). A signed file keeps its signature as long as its content is
        the same; with other weights it needs the `key`, or `drop_signature`.
        """
        self._check_code()
        saver = Saver(self._executable.artifact, self._values, self._relink)
        saver.save(path, weights, params, key, drop_signature)

    def _check_code(self) -> None:
        """Check the code before it is saved; loaded code was checked before."""

    def _relink(self, weights: Weights) -> bytes:
        """The file with weights in a new location: needs its objects."""
        raise WeightsError(
            "weights are put into a file when it is linked, and this one was loaded",
            hint="save it where it is compiled, or give values to a run: run(inputs, params)",
        )
