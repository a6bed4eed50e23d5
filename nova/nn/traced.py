"""A model during the trace of a training step: parameter names, and compute in a half type.

`nova.train.step` enters both around its own code; the model is restored when they end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nova.core.dtypes import DType, f32
from nova.core.pytree import flatten, unflatten
from nova.graph.build import cast
from nova.graph.tensor import Tensor
from nova.nn.module import Module, replaced
from nova.nn.parameter import Buffer, Parameter


def all_params(model: Module, others: Iterable[Tensor]) -> list[Tensor]:
    """The parameters and buffers of the model and the parameters of the optimizer, each once."""
    params: dict[int, Tensor] = {id(param): param for param in model.parameters()}
    for param in (*model.buffers(), *others):
        params.setdefault(id(param), param)
    return list(params.values())


@contextmanager
def named_as_state(model: Module) -> Iterator[None]:
    """Inside, the model's parameters are called `model.<name>`, as in the step's `state_dict`."""
    for name, param in model.named_parameters():
        param.name_after(f"model.{name}")
    try:
        yield
    finally:
        model.parameters()  # names them


@contextmanager
def computing_in(model: Module, params: Sequence[Tensor], half: DType) -> Iterator[None]:
    """Inside, `model` computes in `half`: its parameters, inputs and outputs are cast."""

    def at_edge(value: Any, dtype: DType) -> Any:
        leaves, structure = flatten(value)
        is_float = [isinstance(v, Tensor) and v.dtype.is_float for v in leaves]
        return unflatten(
            structure,
            [cast(v, dtype) if f else v for v, f in zip(leaves, is_float, strict=True)],
        )

    forward = model.forward

    def edged(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = at_edge(args, half), at_edge(kwargs, half)
        return at_edge(forward(*args, **kwargs), f32)

    casts = {
        p: cast(p, half)
        for p in params
        if isinstance(p, Parameter) and not isinstance(p, Buffer) and p.dtype.is_float
    }
    attributes = vars(model)
    before = attributes.get("forward")
    with replaced(model, casts):
        attributes["forward"] = edged
        try:
            yield
        finally:
            del attributes["forward"]
            if before is not None:
                attributes["forward"] = before
