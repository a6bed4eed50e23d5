"""`Node`: one ONNX op with its inputs and attributes, as the rows see it.

Values are tensors of the graph, lists (sequences), `Coded` (narrow types), `EMPTY` (an optional
without a value) or None (an input that was left out). Rows ask for a tensor, or for a value that
must be known at import; `UnknownValue` tells the importer which inputs of the model decide it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.errors import NovaError, OnnxError, OnnxValueError, UnsupportedOpError
from nova.frontends.onnx.element_types import Coded, is_constant
from nova.graph.order import topological
from nova.graph.tensor import Tensor

REQUIRED: Any = object()


class EmptyOptional:
    """An optional without a value."""

    def __repr__(self) -> str:
        return "an empty optional"


EMPTY = EmptyOptional()


class Node:
    """An op of the model: its name, version, inputs and attributes."""

    def __init__(
        self,
        op: str,
        version: int,
        inputs: list[Any],
        attrs: dict[str, Any],
        outputs: int,
        importer: Any,
        scope: Any,
        title: str,
    ):
        self.op, self.version, self.inputs, self.attrs = op, version, inputs, attrs
        self.outputs, self.importer, self.scope, self.title = outputs, importer, scope, title

    # --- inputs -----------------------------------------------------------------------------------

    def has(self, position: int) -> bool:
        """Whether an optional input is there."""
        return position < len(self.inputs) and self.inputs[position] is not None

    def value(self, position: int) -> Any:
        """An input of any sort."""
        if not self.has(position):
            raise OnnxError(f"{self.op} needs input {position}")
        return self.inputs[position]

    def tensor(self, position: int) -> Any:
        """An input that is a tensor."""
        value = self.value(position)
        if isinstance(value, Coded):
            raise self.refused(f"input {position} is {value.narrow.name}")
        if not isinstance(value, Tensor):
            raise OnnxError(f"input {position} of {self.op} is not a tensor")
        return value

    def optional(self, position: int) -> Any:
        """A tensor, or None if the input was left out."""
        return self.tensor(position) if self.has(position) else None

    def tensors(self) -> list[Any]:
        """All inputs of a variadic op."""
        if not self.inputs:
            raise OnnxError(f"{self.op} has no inputs")
        return [self.tensor(i) for i in range(len(self.inputs))]

    # --- values that are known at import --------------------------------------------------------

    def array(self, position: int) -> np.ndarray:
        """The value of an input at import; OnnxValueError names the inputs that decide it."""
        return self.static_array(self.tensor(position), f"input {position}")

    def static_array(self, value: Any, title: str) -> np.ndarray:
        """The value of a tensor at import."""
        if is_constant(value):
            return value.data
        # The numbers of a chain that was too large to fold.
        leaves = [t for t in topological([value]) if t.op is None and t.data is None]
        if not leaves:
            return self.importer.evaluate(value)
        names = sorted({t.name or "?" for t in leaves})
        raise OnnxValueError(
            f"{self.op}: {title} decides shapes and is computed from {', '.join(names)}",
            names=tuple(names),
            hint="pass their values at import: values={name: array}",
        )

    def ints(self, position: int) -> tuple[Any, ...]:
        """The value of an input of integers, flat; elements of a shape may be symbolic sizes."""
        sizes = self.importer.sizes.find(self.value(position))
        if sizes is not None:
            return tuple(sizes.reshape(-1))
        array = self.array(position)
        if array.dtype.kind not in "iub":
            raise OnnxError(f"input {position} of {self.op} has {array.dtype} instead of integers")
        return tuple(int(v) for v in array.reshape(-1))

    def scalar(self, position: int) -> Any:
        """The value of an input of one element, as a Python number."""
        array = self.array(position)
        if array.size != 1:
            raise OnnxError(f"input {position} of {self.op} has {array.size} elements, not one")
        return array.reshape(()).item()

    def axes(self, position: int, name: str = "axes") -> tuple[Any, ...] | None:
        """Axes from an attribute (older versions) or an input; None if there are none."""
        if name in self.attrs:
            return tuple(self.attrs[name])
        return self.ints(position) if self.has(position) else None

    # --- attributes -------------------------------------------------------------------------------

    def attr(self, name: str, default: Any = REQUIRED) -> Any:
        """An attribute; a required one that is missing is an error."""
        value = self.attrs.get(name, default)
        if value is REQUIRED:
            raise OnnxError(f"{self.op} needs the attribute {name!r}")
        if default is not REQUIRED and default is not None and not isinstance(value, type(default)):
            if isinstance(default, bool) and isinstance(value, int):
                return bool(value)
            if not (isinstance(default, tuple | list) and isinstance(value, tuple | list)):
                raise OnnxError(f"attribute {name!r} of {self.op} is {value!r}")
        return value

    def axis(self, rank: int, default: int = REQUIRED, name: str = "axis") -> int:
        """The attribute `axis`, not negative."""
        return self.resolve(self.attr(name, default), rank)

    def resolve(self, axis: int, rank: int) -> int:
        """An axis counted from the end as one counted from the start."""
        if not isinstance(axis, int) or not -rank <= axis < max(rank, 1):
            raise OnnxError(f"{self.op}: axis {axis} of a tensor of rank {rank}")
        return axis % rank if rank else 0

    # --- errors -----------------------------------------------------------------------------------

    def refused(self, reason: str, hint: str | None = None) -> NovaError:
        """The error for a form of the op that Nova does not have."""
        return UnsupportedOpError(f"{self.op}: {reason}", where=self.title, hint=hint)
