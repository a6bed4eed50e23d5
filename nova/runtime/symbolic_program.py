"""Programs with symbolic sizes: a native program for each combination of sizes, made at first use.

In: the code of a file with symbolic tables. A call reads the sizes of its dims from the shapes of
its arrays. The native program for them has the workspace, tile counts and tasks of these sizes,
which native code computes from the expressions of the file, and is kept in a cache of bounded
size (least recently used). The cache is the native base class: a call whose sizes are cached runs
no Python code here, and programs for new sizes are copies of the first one. Sizes that the file
has code of their own for use that, and a size that is used often may get such code later
(`specialize_after`). Needs neither MLIR nor LLVM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from nova import _native
from nova.artifact.manifest import TensorSpec
from nova.artifact.symbolic import unpack_symbolic
from nova.core.dlpack import as_numpy
from nova.core.location import user_location
from nova.core.sizes import Dim, Size, SizeExpr
from nova.core.sizes.binding import bind_sizes
from nova.errors import (
    ArgumentCountError,
    ArgumentShapeError,
    SignatureError,
    WorkspaceError,
)
from nova.runtime.arrays import count_error, make_converter, title_of
from nova.runtime.sized_specs import SizedSpecs, SpecTemplate

MOST_PROGRAMS = 64
"""Combinations of sizes whose programs are kept."""


class CacheInfo(NamedTuple):
    """Statistics of the programs for combinations of sizes."""

    hits: int
    misses: int
    entries: int
    most: int
    specialized: tuple[str, ...] = ()
    """The sizes that have code of their own, such as `B=128`."""


Make = Callable[[bytes | memoryview, bytes | None, SizedSpecs, SizedSpecs], "_native.Program"]
"""The native program of tables, values of sizes, and a signature with static shapes."""


Specializer = Callable[[dict[str, int], Callable[["_native.Program"], None]], None]
"""Starts to compile code for sizes, and passes the native program on when it is there."""

MOST_SPECIALIZED = 16
"""Combinations of sizes that get code of their own because they are used often."""


class SymbolicProgram(_native.SizedPrograms):
    """Calls like those of a native program, with arrays of any sizes."""

    def __init__(
        self,
        block: memoryview,
        args: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        make: Make,
        specialized: Sequence[tuple[tuple[int, ...], memoryview]] = (),
        most: int = MOST_PROGRAMS,
        max_workspace: int | None = None,
        on_device: bool = False,
    ):
        self._tables_for = _native.Symbolic(block, len(args), len(outputs))
        shapes = unpack_symbolic(block)
        self.dims: tuple[Dim, ...] = shapes.dims
        self._args, self._outputs, self._make = args, outputs, make
        self.shapes: tuple[tuple[Size, ...], ...] = shapes.shapes((*args, *outputs))
        self._ranges = tuple(pairwise(accumulate(map(len, self.shapes), initial=0)))
        self._templates = SpecTemplate(args, False), SpecTemplate(outputs, True)
        # Where a call tells each dim; None if an axis is needed that is an expression of dims.
        axes = tuple([self._axis_of(dim) for dim in self.dims])
        self._axes = tuple(axis for axis in axes if axis is not None) if None not in axes else None
        self.configure(len(self.dims), self._axes, most)
        self._make_convert = _converters(*self._templates, self._ranges, len(args))
        self._copies = not specialized and max_workspace is None and not on_device
        self._tables = dict(specialized)
        # Of sizes that get code of their own after some calls: how, after how many, and the calls.
        self._specializer: Specializer | None = None
        self._after = 0
        self._calls: dict[tuple[int, ...], int] = {}
        self._late: dict[tuple[int, ...], _native.Program] = {}
        self._lock = Lock()
        self._most, self._max_workspace = most, max_workspace
        self.label: Any = None
        self.names: Any = None

    def _axis_of(self, dim: Dim) -> tuple[int, int] | None:
        """The first axis of an argument whose size is the dim."""
        axes = (
            (number, axis)
            for number, shape in enumerate(self.shapes[: len(self._args)])
            for axis, size in enumerate(shape)
            if isinstance(size, SizeExpr) and size.symbol == dim
        )
        return next(axes, None)

    # --- sizes ----------------------------------------------------------------------------------

    def sizes_of(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """The sizes of the dims in a call with `arrays`."""
        if self._axes is None:
            return self.check(arrays)
        try:
            return tuple([arrays[number].shape[axis] for number, axis in self._axes])
        except (AttributeError, IndexError, TypeError):  # no array, or one of another rank
            return self.check(arrays)

    def check(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """The sizes of the dims; SignatureError if the shapes of a call do not fit together."""
        if len(arrays) != len(self._args):
            error = count_error(self._args, len(arrays), shapes=self.shapes)
            raise error.located(str(user_location()))
        pairs = zip(self._args, self.shapes, arrays, strict=False)
        try:
            values = bind_sizes([(spec.name, n, _shape_of(spec, n, a)) for spec, n, a in pairs])
        except SignatureError as error:
            raise error.located(str(user_location())) from None
        return tuple(values[dim.name] for dim in self.dims)

    # --- programs -------------------------------------------------------------------------------

    def program_of(self, arrays: Sequence[Any]) -> _native.Program:
        """The native program for the sizes of `arrays`."""
        program = self.find(arrays)
        if program is None:
            sizes = self.sizes_of(arrays)
            if self._axes is None:  # `find` knows axes only
                program = self.get(sizes)
            if program is None:
                return self._first_program(sizes, arrays)
        if self._after:
            with self._lock:
                self._count(self.sizes_of(arrays))
        return program

    def _first_program(self, sizes: tuple[int, ...], arrays: Sequence[Any]) -> _native.Program:
        """The program for a first call with new sizes. Quick, since the call waits for it."""
        self.misses += 1
        try:
            shapes = self._shapes_for(sizes)
        except (ValueError, OverflowError):  # out of bounds
            shapes = None
        actual = [getattr(array, "shape", None) for array in arrays]
        if shapes is None or actual != shapes[: len(self._args)]:
            sizes = self.check(arrays)  # raises, unless an array has no `shape`
            shapes = None
        return self.program_for(sizes, shapes)

    def _shapes_for(self, sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The shapes of arguments and outputs for these sizes of the dims."""
        extents = self._tables_for.extents(sizes)
        return [extents[begin:end] for begin, end in self._ranges]

    # --- code for some sizes --------------------------------------------------------------------

    def specialize_after(self, calls: int, specializer: Specializer) -> None:
        """Let sizes get code of their own after this many calls; 0 for never."""
        with self._lock:
            self._after, self._specializer = calls, specializer
            self.counts_calls = calls > 0

    def _count(self, sizes: tuple[int, ...]) -> None:
        """Count a call; the lock is held."""
        calls = self._calls[sizes] = self._calls.get(sizes, 0) + 1
        if calls != self._after or self.has_code_for(sizes):
            return
        if len(self._late) < MOST_SPECIALIZED and self._specializer is not None:
            self._specializer(self.named(sizes), lambda program: self.use(sizes, program))

    def has_code_for(self, sizes: tuple[int, ...]) -> bool:
        """Whether these sizes have code of their own."""
        return sizes in self._tables or sizes in self._late

    def use(self, sizes: tuple[int, ...], program: _native.Program) -> None:
        """Run calls with these sizes with `program` from now on."""
        self._name(program, sizes, "specialized")
        with self._lock:
            self._late[sizes] = program
        self.copy_none()
        self.keep(sizes, program)

    def named(self, sizes: Sequence[int]) -> dict[str, int]:
        """The sizes by the names of their dims."""
        return dict(zip((dim.name for dim in self.dims), sizes, strict=True))

    def _name(self, program: _native.Program, sizes: tuple[int, ...], code: str) -> None:
        """The name of a program in traces: it says which code runs, and for which sizes."""
        label = self.label or "program"
        program.label, program.names = f"{label} [{self._text(sizes)}, {code}]", self.names

    def _text(self, sizes: tuple[int, ...]) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.named(sizes).items())

    def program_for(
        self, sizes: tuple[int, ...], shapes: list[tuple[int, ...]] | None = None
    ) -> _native.Program:
        """The native program for these sizes of the dims, and the `shapes` of its arrays if the
        caller has them."""
        if (late := self._late.get(sizes)) is not None:
            self.keep(sizes, late)
            return late
        try:
            program = self._make_for(sizes, shapes or self._shapes_for(sizes))
        except (ValueError, OverflowError) as error:
            raise WorkspaceError(
                f"there is no program for {self._text(sizes)}: {error}",
                where=str(user_location()),
                hint="the arrays and the scratch memory of a run have less than 2**63 bytes",
            ) from None
        if self._max_workspace is not None and program.workspace_size > self._max_workspace:
            raise WorkspaceError(
                f"the program needs {program.workspace_size} bytes of scratch memory for "
                f"{self._text(sizes)}, and max_workspace allows {self._max_workspace}",
                where=str(user_location()),
                hint="call it with smaller arrays, or compile it with a larger max_workspace",
            )
        self._name(program, sizes, "specialized" if sizes in self._tables else "symbolic")
        self.keep(sizes, program)
        if self._copies and not self._late:
            self.copy_from(self._tables_for, program, self._make_convert)
        return program

    def _make_for(self, sizes: tuple[int, ...], shapes: list[tuple[int, ...]]) -> _native.Program:
        """A native program for these sizes: of the code for them, or of that for all sizes."""
        tables: bytes | memoryview | None = self._tables.get(sizes)
        values: bytes | None = None
        if tables is None:
            tables, values = self._tables_for.instantiate(sizes)
        count = len(self._args)
        args, outputs = self._templates
        return self._make(tables, values, args.sized(shapes[:count]), outputs.sized(shapes[count:]))

    def cache_info(self) -> CacheInfo:
        """How often a call found its program, and how many are kept."""
        with self._lock:
            specialized = tuple(self._text(sizes) for sizes in {**self._tables, **self._late})
            return CacheInfo(self.hits, self.misses, self.entries, self._most, specialized)

    # --- calls ----------------------------------------------------------------------------------

    def explain(self, error: BaseException, arrays: Sequence[Any]) -> BaseException:
        """The exception of a call instead of `error`: one about shapes names the dims."""
        # A count of the arrays in out= has no symbolic shapes to name.
        counted = isinstance(error, ArgumentCountError) and len(arrays) != len(self._args)
        if counted or isinstance(error, ArgumentShapeError):
            try:
                self.check(arrays)
            except SignatureError as about_dims:
                return about_dims
        return error

    def run(
        self,
        inputs: Sequence[Any],
        params: Sequence[Any] = (),
        out: Any = None,
        timeout: float | None = None,
        *,
        outputs: str | None = None,
    ) -> Any:
        arrays = [*inputs, *params]
        program = self.program_of(arrays)
        try:
            return program.run(inputs, params, out, timeout, outputs=outputs)
        except SignatureError as error:
            raise self.explain(error, arrays) from None

    def submit(
        self,
        arrays: Sequence[Any],
        out: Any = None,
        stream: Any = None,
        timeout: float | None = None,
        outputs: str | None = None,
    ) -> Any:
        program = self.program_of(arrays)
        try:
            return program.submit(arrays, out, stream, timeout, outputs)
        except SignatureError as error:
            raise self.explain(error, arrays) from None


def _shape_of(spec: TensorSpec, declared: tuple[Size, ...], value: Any) -> tuple[int, ...]:
    """The shape of an argument; ArgumentTypeError if it is not an array."""
    if hasattr(value, "shape") or (type(value) in (bool, int, float) and not declared):
        return np.shape(value)
    return as_numpy(value, title_of(spec)).shape


def _converters(
    args: SpecTemplate, outputs: SpecTemplate, ranges: Sequence[tuple[int, int]], count: int
) -> Callable[[tuple[int, ...]], Callable[[int, Any, bool], Any]]:
    """The function that makes the converter of a copied program from the sizes of all axes.

    It has no reference to the SymbolicProgram, which would be a cycle.
    """

    def make_convert(extents: tuple[int, ...]) -> Callable[[int, Any, bool], Any]:
        shapes = [extents[begin:end] for begin, end in ranges]
        return make_converter(args.sized(shapes[:count]), outputs.sized(shapes[count:]))

    return make_convert
