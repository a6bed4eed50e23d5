"""The arguments or outputs of a program for the sizes of a call.

The first call with new sizes waits until a native program is made. It needs rows of shapes and
numpy dtypes; the specs themselves only matter to the slow path of arguments and to errors, so a
spec is created when it is indexed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from nova.artifact.manifest import TensorSpec
from nova.core.dtypes import array_dtype

Shapes = Sequence[tuple[int, ...]]
Row = tuple[tuple[int, ...], "np.dtype[Any]", Any]
"""Shape, dtype, and whether an argument is donated or which argument an output aliases."""


class SpecTemplate:
    """The specs of a signature, whose shapes are not those of a call."""

    def __init__(self, specs: Sequence[TensorSpec], is_output: bool):
        self.specs = specs
        self._dtypes = [array_dtype(spec.dtype).numpy for spec in specs]
        self._flags = [spec.alias if is_output else spec.donated for spec in specs]

    def sized(self, shapes: Shapes) -> SizedSpecs:
        """The specs with these shapes."""
        return SizedSpecs(self, shapes)

    def rows(self, shapes: Shapes) -> list[Row]:
        """What the constructor of a native program reads."""
        return list(zip(shapes, self._dtypes, self._flags, strict=True))


class SizedSpecs(Sequence[TensorSpec]):
    """The specs of a template with the shapes of a call."""

    def __init__(self, template: SpecTemplate, shapes: Shapes):
        self._template, self._shapes = template, shapes
        self._specs: dict[int, TensorSpec] = {}

    @property
    def rows(self) -> list[Row]:
        """What the constructor of a native program reads."""
        return self._template.rows(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    @overload
    def __getitem__(self, index: int) -> TensorSpec: ...
    @overload
    def __getitem__(self, index: slice) -> list[TensorSpec]: ...
    def __getitem__(self, index: int | slice) -> TensorSpec | list[TensorSpec]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        spec = self._specs.get(index)
        if spec is None:
            spec = replace(self._template.specs[index], shape=self._shapes[index])
            self._specs[index] = spec
        return spec


def static_specs(specs: Sequence[TensorSpec], is_output: bool) -> SizedSpecs:
    """Those of a program with static shapes."""
    return SpecTemplate(specs, is_output).sized([spec.shape for spec in specs])
