"""Nova as a backend of ONNX: `onnx.backend.base.Backend` for tools that take any backend.

`onnx.backend.test.BackendTest(NovaBackend, __name__)` runs ONNX's own tests. A model that Nova
refuses raises `BackendIsNotSupposedToImplementIt`, as the interface asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

from nova.api.from_onnx import OnnxProgram, from_onnx
from nova.errors import DTypeError, OnnxValueError, UnsupportedOpError

_REFUSALS = (UnsupportedOpError, OnnxValueError, DTypeError)


class NovaRep(BackendRep):
    """A prepared model."""

    def __init__(self, program: OnnxProgram):
        self.program = program

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for a list of inputs, or for one input."""
        args = inputs if isinstance(inputs, list | tuple) else [inputs]
        try:
            return tuple(self.program.run(*args))
        except _REFUSALS as error:
            raise BackendIsNotSupposedToImplementIt(str(error)) from error


class NovaBackend(Backend):
    """Compiles ONNX models for the CPU."""

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> NovaRep:
        """Import a model; it is compiled when the shapes of its inputs are known."""
        return NovaRep(from_onnx(model, **kwargs))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Sequence[Any], device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Import a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on `device`."""
        return device == "CPU"
