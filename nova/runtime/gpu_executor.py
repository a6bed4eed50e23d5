"""Makes a file executable on a device: selects and loads its code, creates one native program.

`nova.load` and the compile driver call `load_for` with the name of a device. Needs neither MLIR nor
LLVM.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, NoReturn

import numpy as np

from nova import _native, knobs
from nova.artifact.check import Buffer
from nova.artifact.choose_target import DeviceChoice, choose_device, explain_device
from nova.artifact.cubins.assembled import bundle_for
from nova.artifact.device_image import arch_number
from nova.artifact.format import Artifact
from nova.artifact.manifest import DeviceSpec, TensorSpec
from nova.artifact.symbolic import SIZE_BYTES, unpack_symbolic
from nova.artifact.tables import kernel_addresses, read_header, unpack_tables
from nova.core.dtypes import array_dtype
from nova.core.location import user_location
from nova.core.log import enabled, log
from nova.core.settings import Settings
from nova.core.sizes import Size
from nova.errors import DeviceArchitectureError, NovaError
from nova.knobs import DEVICE_LOOPS, DEVICE_OVERLAP, SIM_SCHEDULES
from nova.runtime.device_arrays import make_device_converter
from nova.runtime.devices import explain_absent, is_simulated, open_device
from nova.runtime.executor import Executable, load_image
from nova.runtime.failures import report_on_device
from nova.runtime.ring import RingProgram
from nova.runtime.sized_specs import SizedSpecs, static_specs
from nova.runtime.symbolic_program import SymbolicProgram
from nova.runtime.weights import ParamValues

_RING_KERNELS = ("nova_persistent_chains", "nova_persistent_ring")
"""Kernels that take a ring: that of nova/codegen/gpu/persistent/kernel.py, and of older files."""


class DeviceExecutable(Executable):
    """A file loaded for `device`, with code and constants on it."""

    def __init__(self, artifact: Artifact, device: _native.Device):
        self.artifact = artifact
        self.manifest = artifact.manifest
        self.device = device
        self.device_name = device.name
        self.choice = _choose(artifact, device)
        self.variant = self.choice.variant
        if enabled("load"):
            log("load", self.why)
        block = artifact.file.tables(self.variant)
        self.workspace_size, _ = read_header(block)
        args = static_specs(self.manifest.args, is_output=False)
        outputs = static_specs(self.manifest.outputs, is_output=True)
        pinned = kernel_addresses(block)
        self._host_image = load_image(artifact, self.variant) if pinned else None
        self._loaded: _native.Program | None = None
        symbolic = artifact.file.symbolic(self.variant)
        if symbolic is None:
            self.program = self._make_program(block, None, args, outputs)
        else:
            # Never called: it has the code and constants that the programs for sizes share.
            values = bytes(SIZE_BYTES * unpack_symbolic(symbolic).value_count)
            self._loaded = self._make_program(block, values, args, outputs)
            self.program = SymbolicProgram(
                symbolic,
                self.manifest.args,
                self.manifest.outputs,
                self._make_program,
                artifact.file.specialized(self.variant),
                max_workspace=Settings.of(self.spec.options).max_workspace,
                on_device=True,
            )
        self.program.names = (tuple(a.name for a in args), tuple(o.name for o in outputs))

    def repeated(self, repeats: int) -> _native.Program | None:
        """The program that runs so many times in one launch; None for one that cannot.

        Its inputs, and its outputs that are not params, have a leading axis of this size. Kernels
        access up to 16 bytes at once: each part has to be aligned for that.
        """
        return None if self.refuses_parts() else self._make_repeated(repeats)

    def ring(self, slots: int) -> RingProgram:
        """The program that takes the data of its repetitions from a ring; `refuses_ring` is ''."""
        inputs, results = self._parts()
        return RingProgram(self._make_repeated(slots, ring=True), slots, inputs, results)

    def refuses_ring(self) -> str:
        """Why it cannot have a ring: empty if it can."""
        tables = unpack_tables(self.artifact.file.tables(self.variant))
        if reason := self.refuses_parts():
            return reason
        if not any(kernel.name in _RING_KERNELS for kernel in tables.kernels):
            return "it has loops or branches, or was compiled by an older version"
        return "" if len(tables.launches) else "it has no launch"

    def refuses_parts(self) -> str:
        """Why its arrays cannot have a part for each repetition: empty if they can."""
        sizes = [
            prod(t.shape) * array_dtype(t.dtype).numpy.itemsize
            for tensors in self._parts()
            for t in tensors
        ]
        if Settings.of(self.spec.options).launch != "persistent":
            return "it was not compiled with launch='persistent'"
        if not isinstance(self.program, _native.Program):
            return "it has symbolic sizes"
        if any(size % 16 and size not in (1, 2, 4, 8) for size in sizes):
            return "an array has neither 1, 2, 4 or 8 bytes nor a multiple of 16"
        return ""

    def _parts(self) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """The inputs, and the results, that have a part for each repetition."""
        inputs = tuple(spec for spec in self.manifest.args if spec.role == "input")
        return inputs, tuple(spec for spec in self.manifest.outputs if spec.alias < 0)

    def _make_repeated(self, repeats: int, ring: bool = False) -> _native.Program:
        tensors = [t for part in self._parts() for t in part]

        def stacked(spec: TensorSpec) -> TensorSpec:
            return replace(spec, shape=(repeats, *spec.shape)) if spec in tensors else spec

        args = static_specs([stacked(spec) for spec in self.manifest.args], is_output=False)
        outputs = static_specs([stacked(spec) for spec in self.manifest.outputs], is_output=True)
        block = self.artifact.file.tables(self.variant)
        program = self._make_program(block, None, args, outputs, repeats, ring)
        program.names = self.program.names
        return program

    def _make_program(
        self,
        block: bytes | memoryview,
        sizes: bytes | None,
        args: SizedSpecs,
        outputs: SizedSpecs,
        repeats: int = 1,
        ring: bool = False,
    ) -> _native.Program:
        """The native program of a block of tables, with the values of `sizes` if it takes any."""
        image = self.manifest.devices[self.choice.image]
        offset, size = self.spec.constants
        shares = self._loaded if repeats == 1 else self.program
        kind, code = (
            (image.kind, b"")
            if shares is not None
            else _read_code(self.artifact, image, self.device)
        )
        return _native.Program.on_device(
            self.device,
            block,
            kind,
            image.arch,
            code,
            self.artifact.section(".nova.const")[offset : offset + size],
            args.rows,
            outputs.rows,
            make_device_converter(args, outputs, self.device),
            sum(a.role == "input" for a in args),
            self._host_image,
            report_on_device,
            sizes or b"",
            shares,
            DEVICE_LOOPS.index(knobs.device_loops),
            DEVICE_OVERLAP.index(knobs.device_overlap),
            repeats,
            ring,
        )

    @property
    def why(self) -> str:
        """The selected code and the device: one line."""
        return f"{explain_device(self.artifact, self.choice)}, on {self.device.name}"


class AbsentDevice(Executable):
    """A file for a missing device: it can be inspected and saved; a run raises the reason."""

    def __init__(self, artifact: Artifact, variant: int, error: NovaError, device: str):
        self.artifact = artifact
        self.device_name = device
        self.manifest = artifact.manifest
        self.variant = variant
        self.workspace_size, _ = read_header(artifact.file.tables(variant))
        self.error = error
        self.program: Any = _AbsentProgram(error)
        symbolic = artifact.file.symbolic(variant)
        if symbolic is not None:
            tensors = (*self.manifest.args, *self.manifest.outputs)
            self.program.shapes = unpack_symbolic(symbolic).shapes(tensors)

    @property
    def why(self) -> str:
        """Why it does not run: one line."""
        return f"{self.spec.target}, which is not here: {self.error.what}"


class _AbsentProgram:
    """Stands in for a native program."""

    label: str | None = None
    shapes: tuple[tuple[Size, ...], ...] | None = None  # those of a program with symbolic sizes

    def __init__(self, error: NovaError):
        self._error = error

    def __call__(self, *arrays: Any, **options: Any) -> NoReturn:
        raise self._error.located(str(user_location()))

    run = submit = __call__


def load_for(artifact: Artifact, device: str, *, needed: bool = True) -> Executable:
    """The program of a file on the device of this name.

    If it is not `needed` now, a program for a missing device becomes an `AbsentDevice`.
    """
    try:
        return DeviceExecutable(artifact, open_device(device))
    except NovaError as error:
        variants = artifact.manifest.variants
        device_variants = [n for n, spec in enumerate(variants) if spec.is_device]
        if needed or not device_variants:
            raise
        return AbsentDevice(artifact, device_variants[0], explain_absent(error), device)


def load_anywhere(artifact: Artifact, device: str | None = None) -> Executable:
    """The program of a file on its last device, or on one that it has code for.

    A missing device is an error only when the program runs.
    """
    if device is None and all(spec.is_device for spec in artifact.manifest.variants):
        device = "cuda"
    return Executable(artifact) if device is None else load_for(artifact, device, needed=False)


def _read_code(artifact: Artifact, image: DeviceSpec, device: _native.Device) -> tuple[str, Buffer]:
    """The code in a format that the device's driver loads, and its kind."""
    code = artifact.section(".nova.device")[image.offset : image.offset + image.size]
    if not is_simulated(device):
        bundle = None
        if image.kind == "ptx":
            major, minor = device.capability
            arch = f"sm_{major}{minor}{'a' if image.arch.endswith('a') else ''}"
            bundle = bundle_for(bytes(code), arch, device.driver_version)
        return (image.kind, code) if bundle is None else ("cubin", bundle)
    from nova.gpusim.image import decode_image  # the PTX decoder is not needed elsewhere

    schedule = SIM_SCHEDULES.index(knobs.sim_schedule)
    return image.kind, decode_image(bytes(code).decode("ascii", "replace"), schedule)


def _choose(artifact: Artifact, device: _native.Device) -> DeviceChoice:
    if not is_simulated(device):
        return choose_device(artifact, *device.capability)
    return choose_simulated(artifact)


def choose_simulated(artifact: Artifact) -> DeviceChoice:
    """The variant for the simulator: the newest one with PTX."""
    manifest = artifact.manifest
    candidates = [
        (arch_number(image.arch), spec.cpu, DeviceChoice(variant, number))
        for variant, spec in enumerate(manifest.variants)
        for number, image in enumerate(manifest.devices)
        if spec.is_device and image.kind == "ptx" and image.arch == spec.cpu
    ]
    if not candidates:
        raise DeviceArchitectureError(
            "the file has no PTX, which is what the simulator runs",
            hint="compile it for a device, such as cuda:sm_80",
        )
    return max(candidates, key=lambda row: row[:2])[2]


class DeviceValues(ParamValues):
    """Param values that came with a file, copied to a device when a run first needs them.

    Runs that update params update the copies on the device.
    """

    def __init__(self, values: ParamValues, device: _native.Device):
        super().__init__(values.params, values._arrays_before_copy, values.kind)
        self._device = device

    def _copy_donated(self, spec: TensorSpec, array: np.ndarray | None) -> Any:
        if array is None:
            return None
        return _native.DeviceArray.of(self._device, np.asarray(array, order="C"))

    def host(self) -> tuple[np.ndarray | None, ...]:
        """Host copies of the current device values."""
        return tuple(array if array is None else array.numpy() for array in self.get())


def values_on(executable: Executable, values: ParamValues) -> ParamValues:
    """The values in the form that runs of a program need.

    Those of a graph stay on the host, where their tensors see updates.
    """
    if isinstance(executable, DeviceExecutable) and values.kind != "graph":
        return DeviceValues(values, executable.device)
    return values
