"""The values that a loop carries: the dtypes they take, and the checks of what a body returns.

`functions.py` makes `Carries` of the initial value of a loop. A carried value keeps its shape and
dtype. A Python number is weak, as in `jax.lax`: if the body returns a value of another dtype, the
number takes it, unless the dtype does not hold such numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nova.core.dtypes import DType, TensorType, bool_, real_of
from nova.core.location import user_location
from nova.core.pytree import TreeDef, flatten
from nova.core.sizes import same_shape
from nova.errors import CarryError, NovaError
from nova.graph.build import cast, constant, operand_dtype
from nova.graph.control.regions import Traced, as_tensor
from nova.graph.tensor import Tensor
from nova.ops import F

Run = Callable[[list[TensorType], list[bool]], Traced]
"""Traces the body for carries of these types, of which some are weak."""


def is_weak(leaf: Any) -> bool:
    """Whether a value takes the dtype of other operands. A bool is not a number here."""
    if isinstance(leaf, Tensor):
        return leaf.weak and leaf.dtype is not bool_
    return type(leaf) in (int, float, complex)


class Carries:
    """The initial carries of one loop; the first `prefix` are not of the user."""

    def __init__(self, title: str, initial: Any, prefix: int = 0) -> None:
        self.title = title
        self.leaves, self.structure = flatten(initial, sort_keys=True)
        self.weak = [is_weak(leaf) for leaf in self.leaves]
        shown = self.structure.children[1] if prefix else self.structure
        self.names = ["index"] * prefix + shown.leaf_names("carry")

    def tensors(self) -> list[Tensor]:
        return [as_tensor(leaf) for leaf in self.leaves]

    def settle(self, run: Run, *, nested: bool = False) -> tuple[list[Tensor], Traced]:
        """The initial carries and the traced body, which returns carries of the same types.

        `nested`: the structure of the carry is the first child of what the body returns.
        """
        carries = self.tensors()
        # A complex operand is split into real ones, which are not weak.
        weak = [w and not c.dtype.is_complex for w, c in zip(self.weak, carries, strict=True)]
        body = run([c.type for c in carries], weak)
        self.compare_structure(body.structure.children[0] if nested else body.structure)
        changed = False
        for i, new in enumerate(body.region.results[: len(carries)]):
            if self.weak[i] and new.dtype is not carries[i].dtype:
                dtype = operand_dtype(self.leaves[i], new.dtype)
                if dtype is not carries[i].dtype:
                    carries[i], weak[i], changed = self._number(i, dtype), False, True
        if changed:
            body = run([c.type for c in carries], weak)
        self.compare_types([c.type for c in carries], body.region.results[: len(carries)])
        return carries, body

    def _number(self, i: int, dtype: DType) -> Tensor:
        """A weak initial value as `dtype`, converted once: f32 has not all digits of f64."""
        leaf = self.leaves[i]
        if isinstance(leaf, Tensor):
            if not dtype.is_complex:
                return cast(leaf, dtype)
            pair: Tensor = F.complex(leaf, constant(0.0, real_of(dtype)))
            return pair
        try:
            return constant(leaf, dtype)
        except NovaError as error:
            raise error.located(str(user_location()), f"{self.title}: {self.names[i]}: ") from None

    def compare_structure(self, returned: TreeDef) -> None:
        if returned != self.structure:
            raise CarryError(
                f"{self.title}: the body takes a carry of structure {self.structure} "
                f"and returns {returned}",
                where=str(user_location()),
                hint="return the carry in the structure of the initial value",
            )

    def compare_types(self, types: Sequence[TensorType], returned: Sequence[Tensor]) -> None:
        rows = zip(self.names, types, returned, self.leaves, self.weak, strict=True)
        for name, old, new, leaf, weak in rows:
            if old == new.type:
                continue
            origin = f" (the number {leaf})" if weak and not isinstance(leaf, Tensor) else ""
            raise CarryError(
                f"{self.title}: the body takes {name} as {old}{origin} and returns {new.type}",
                where=str(new.location),
                hint=_advice(old, new.type),
            )


def _advice(old: TensorType, new: TensorType) -> str:
    keeps = "a carried value keeps its shape and dtype"
    if not same_shape(old.shape, new.shape):
        return f"{keeps}: reshape or reduce the new value, or the initial one"
    return (
        f'{keeps}: cast the new value, nova.cast(value, "{old.dtype}"), '
        f"or the initial one to {new.dtype}"
    )
