"""Makes an artifact executable: selects the best variant, maps its code, creates a native program.

Needs neither MLIR nor LLVM. `Executable.program` is the native object; calling it is the hot path.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from nova import _native
from nova.artifact.choose_target import choose_variant, explain_variant
from nova.artifact.format import Artifact
from nova.artifact.manifest import VariantSpec
from nova.artifact.tables import Tables, read_header
from nova.core.log import enabled, log
from nova.core.settings import Settings
from nova.errors import ArtifactError
from nova.runtime.arrays import make_converter
from nova.runtime.failures import make_reporter
from nova.runtime.sized_specs import SizedSpecs, static_specs
from nova.runtime.symbolic_program import SymbolicProgram


class Executable:
    """A loaded artifact: `variant` is the index of the selected one, `device_name` its device."""

    device_name: str | None = None  # None for the CPU

    def __init__(self, artifact: Artifact):
        manifest, file = artifact.manifest, artifact.file
        self.artifact = artifact
        self.manifest = manifest
        self.variant = choose_variant(artifact)
        if enabled("load"):
            log("load", self.why)
        block = file.tables(self.variant)
        self.workspace_size, _ = read_header(block)
        self._image = load_image(artifact, self.variant)
        self._report = make_reporter(artifact, self.variant)
        symbolic = file.symbolic(self.variant)
        self.program: Any = (
            self._make_program(
                block,
                None,
                static_specs(manifest.args, is_output=False),
                static_specs(manifest.outputs, is_output=True),
            )
            if symbolic is None
            else SymbolicProgram(
                symbolic,
                manifest.args,
                manifest.outputs,
                self._make_program,
                file.specialized(self.variant),
                max_workspace=Settings.of(self.spec.options).max_workspace,
            )
        )

    def _make_program(
        self,
        block: bytes | memoryview,
        sizes: bytes | None,
        args: SizedSpecs,
        outputs: SizedSpecs,
    ) -> _native.Program:
        """The native program of a block of tables, with the values of `sizes` if it loads any."""
        _, work = read_header(block)
        try:
            return _native.Program(
                self._image,
                block,
                self.artifact.file.constants_vaddr(self.variant),
                args.rows,
                outputs.rows,
                make_converter(args, outputs),
                work > _native.KEEP_GIL_WORK,
                self._report,
                sizes,
            )
        except _native.FileError as error:  # of a file that it calls
            raise ArtifactError(f"check '{error.check}' failed: {error.text}") from None

    @property
    def spec(self) -> VariantSpec:
        """The manifest entry of the selected variant."""
        return self.manifest.variants[self.variant]

    @cached_property
    def tables(self) -> Tables:
        """Kernels, launches and buffers of the selected variant, for people and tools."""
        return self.artifact.tables(self.variant)

    @property
    def why(self) -> str:
        """The selected variant, and why better ones do not run: one line."""
        return explain_variant(self.artifact, self.variant)


def load_image(artifact: Artifact, variant: int) -> _native.Image:
    """Map the host code of a file; a variant lists its CPUs."""
    try:
        return artifact.file.load(variant)
    except _native.FileError as error:
        raise ArtifactError(f"check '{error.check}' failed: {error.text}") from None


def in_order(executable: Executable, order: Any, cores: int) -> Executable:
    """The same program with its tasks for `cores` threads in the order of a simulation, on the
    calling thread."""
    ordered = Executable(executable.artifact)
    ordered.program.set_order(order, cores)
    return ordered


class LoggedProgram:
    """A native program that prints a `[run]` line for every run.

    It replaces the native object when the topic is on, so a run without logging costs nothing
    extra.
    """

    def __init__(self, executable: Executable, name: str):
        self._program = executable.program
        self._name = name
        launches = len(executable.tables.launches)
        self._size = f"{launches} kernel{'s' if launches != 1 else ''}"

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        started = time.perf_counter()
        result = self._program(*arrays, out=out)
        self._log(started)
        return result

    def run(
        self,
        inputs: Sequence[Any],
        params: Sequence[Any] = (),
        out: Any = None,
        timeout: float | None = None,
        *,
        outputs: str | None = None,
    ) -> Any:
        started = time.perf_counter()
        result = self._program.run(inputs, params, out, timeout, outputs=outputs)
        self._log(started)
        return result

    def submit(
        self,
        arrays: Sequence[Any],
        out: Any,
        stream: Any,
        timeout: float | None,
        outputs: str | None = None,
    ) -> Any:
        run = self._program.submit(arrays, out, stream, timeout, outputs)
        log("run", f"{self._name}: {self._size}, submitted")
        return run

    def _log(self, started: float) -> None:
        seconds = time.perf_counter() - started
        log("run", f"{self._name}: {self._size}, {seconds * 1e6:.1f} us")
