"""Programs with symbolic sizes: a native program for each combination of sizes, made at first use.

In: the code of a file with symbolic tables. A call reads the sizes of its dims from the shapes of
its arrays. The native program for them has the workspace, tile counts and tasks of these sizes,
which native code computes from the expressions of the file, and is kept in a cache of bounded
size (least recently used). Sizes that the file has code of their own for use that, and a size that
is used often may get such code later (`specialize_after`). Needs neither MLIR nor LLVM.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import eq
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from nova import _native
from nova.artifact.manifest import TensorSpec
from nova.artifact.symbolic import unpack_symbolic
from nova.core.location import user_location
from nova.core.sizes import Dim, Size, SizeExpr, evaluate
from nova.core.sizes.binding import bind_sizes
from nova.errors import (
    ArgumentCountError,
    ArgumentShapeError,
    SignatureError,
    WorkspaceError,
)

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


Make = Callable[
    [bytes | memoryview, bytes | None, Sequence[TensorSpec], Sequence[TensorSpec]],
    "_native.Program",
]
"""The native program of tables, values of sizes, and a signature with static shapes."""


Specializer = Callable[[dict[str, int], Callable[["_native.Program"], None]], None]
"""Starts to compile code for sizes, and passes the native program on when it is there."""

MOST_SPECIALIZED = 16
"""Combinations of sizes that get code of their own because they are used often."""


class SymbolicProgram:
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
    ):
        self._native = _native.Symbolic(block, len(args), len(outputs))
        shapes = unpack_symbolic(block)
        self.dims: tuple[Dim, ...] = shapes.dims
        self._args, self._outputs, self._make = args, outputs, make
        self.shapes: tuple[tuple[Size, ...], ...] = shapes.shapes((*args, *outputs))
        # Where a call tells each dim; None if an axis is needed that is an expression of dims.
        axes = [self._axis_of(dim) for dim in self.dims]
        self._axes = [axis for axis in axes if axis is not None] if None not in axes else None
        self._programs: OrderedDict[tuple[int, ...], _native.Program] = OrderedDict()
        self._tables = dict(specialized)
        # Of sizes that get code of their own after some calls: how, after how many, and the calls.
        self._specializer: Specializer | None = None
        self._after = 0
        self._calls: dict[tuple[int, ...], int] = {}
        self._late: dict[tuple[int, ...], _native.Program] = {}
        self._lock = Lock()
        self._most, self._max_workspace = most, max_workspace
        self._hits = self._misses = 0
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
        except (AttributeError, IndexError, TypeError):  # lists, or an array of another rank
            return self.check(arrays)

    def check(self, arrays: Sequence[Any]) -> tuple[int, ...]:
        """The sizes of the dims; SignatureError if the shapes of a call do not fit together."""
        if len(arrays) != len(self._args):
            raise ArgumentCountError(
                f"{len(arrays)} arrays given, the program takes {len(self._args)}",
                where=str(user_location()),
            )
        shapes = zip(self._args, self.shapes, map(np.shape, arrays), strict=False)
        try:
            values = bind_sizes([(spec.name, shape, actual) for spec, shape, actual in shapes])
        except SignatureError as error:
            raise error.located(str(user_location())) from None
        return tuple(values[dim.name] for dim in self.dims)

    # --- programs -------------------------------------------------------------------------------

    def program_of(self, arrays: Sequence[Any]) -> _native.Program:
        """The native program for the sizes of `arrays`."""
        sizes = self.sizes_of(arrays)
        with self._lock:
            program = self._programs.get(sizes)
            if program is not None:
                self._hits += 1
                self._programs.move_to_end(sizes)
                if self._after:
                    self._count(sizes)
                return program
            self._misses += 1
        return self.program_for(sizes if self._fits(sizes, arrays) else self.check(arrays))

    def _fits(self, sizes: tuple[int, ...], arrays: Sequence[Any]) -> bool:
        """Whether all shapes of a call are those for `sizes`; `check` finds out which are not.

        Quick, since a first call with new sizes waits for it.
        """
        if len(arrays) != len(self._args):
            return False
        if not all(d.min <= n <= d.max for d, n in zip(self.dims, sizes, strict=True)):
            return False
        shapes = self._shapes_for(self.named(sizes), self.shapes[: len(arrays)])
        return all(map(eq, [getattr(array, "shape", None) for array in arrays], shapes))

    @staticmethod
    def _shapes_for(
        named: Mapping[str, int], shapes: Sequence[tuple[Size, ...]]
    ) -> list[tuple[int, ...]]:
        """The shapes for these values of the dims."""
        return [
            tuple([n if isinstance(n, int) else evaluate(n, named) for n in shape])
            for shape in shapes
        ]

    # --- code for some sizes --------------------------------------------------------------------

    def specialize_after(self, calls: int, specializer: Specializer) -> None:
        """Let sizes get code of their own after this many calls; 0 for never."""
        with self._lock:
            self._after, self._specializer = calls, specializer

    def _count(self, sizes: tuple[int, ...]) -> None:
        """Count a call; the lock is held."""
        calls = self._calls[sizes] = self._calls.get(sizes, 0) + 1
        if calls != self._after or sizes in self._tables or sizes in self._late:
            return
        if len(self._late) < MOST_SPECIALIZED and self._specializer is not None:
            self._specializer(self.named(sizes), lambda program: self._replace(sizes, program))

    def _replace(self, sizes: tuple[int, ...], program: _native.Program) -> None:
        """Run calls with these sizes with `program` from now on."""
        self._name(program, sizes, "specialized")
        with self._lock:
            self._programs[sizes] = self._late[sizes] = program

    def named(self, sizes: Sequence[int]) -> dict[str, int]:
        """The sizes by the names of their dims."""
        return dict(zip((dim.name for dim in self.dims), sizes, strict=True))

    def _name(self, program: _native.Program, sizes: tuple[int, ...], code: str) -> None:
        """The name of a program in traces: it says which code runs, and for which sizes."""
        label = self.label or "program"
        program.label, program.names = f"{label} [{self._text(sizes)}, {code}]", self.names

    def _text(self, sizes: tuple[int, ...]) -> str:
        return ", ".join(f"{name}={size}" for name, size in self.named(sizes).items())

    def program_for(self, sizes: tuple[int, ...]) -> _native.Program:
        """The native program for these sizes of the dims."""
        if (late := self._late.get(sizes)) is not None:
            self._keep(sizes, late)
            return late
        try:
            program = self._make_for(sizes)
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
        self._keep(sizes, program)
        return program

    def _make_for(self, sizes: tuple[int, ...]) -> _native.Program:
        """A native program for these sizes: of the code for them, or of that for all sizes."""
        tables: bytes | memoryview | None = self._tables.get(sizes)
        values: bytes | None = None
        if tables is None:
            tables, values = self._native.instantiate(sizes)
        named = self.named(sizes)
        specs, shapes = (*self._args, *self._outputs), self._shapes_for(named, self.shapes)
        static = [
            TensorSpec(spec.name, shape, spec.dtype, spec.role, spec.donated, spec.alias)
            for spec, shape in zip(specs, shapes, strict=True)
        ]
        count = len(self._args)
        return self._make(tables, values, static[:count], static[count:])

    def _keep(self, sizes: tuple[int, ...], program: _native.Program) -> None:
        with self._lock:
            self._programs[sizes] = program
            while len(self._programs) > self._most:
                self._programs.popitem(last=False)

    def cache_info(self) -> CacheInfo:
        """How often a call found its program, and how many are kept."""
        with self._lock:
            specialized = tuple(self._text(sizes) for sizes in {**self._tables, **self._late})
            return CacheInfo(self._hits, self._misses, len(self._programs), self._most, specialized)

    # --- calls ----------------------------------------------------------------------------------

    def __call__(self, *arrays: Any, out: Any = None, outputs: str | None = None) -> Any:
        program = self.program_of(arrays)
        try:
            if outputs is not None:
                return program(*arrays, out=out, outputs=outputs)
            return program(*arrays) if out is None else program(*arrays, out=out)
        except ArgumentShapeError:
            self.check(arrays)  # its error names the symbols
            raise

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
        except ArgumentShapeError:
            self.check(arrays)
            raise

    def submit(
        self,
        arrays: Sequence[Any],
        out: Any = None,
        stream: Any = None,
        timeout: float | None = None,
        outputs: str | None = None,
    ) -> Any:
        return self.program_of(arrays).submit(arrays, out, stream, timeout, outputs)
