"""`Parameter`: a leaf of the graph that belongs to a module and that training updates in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from nova.core.dtypes import DType, TensorType, converted, dtype
from nova.core.location import user_location
from nova.core.user_facing import user_facing_class
from nova.errors import (
    ControlFlowError,
    GradientError,
    GraphError,
    ShapeError,
    StateDictError,
)
from nova.graph import Tensor, tensor
from nova.graph.build import cast
from nova.graph.capture import current_capture, current_region, generation, note_change
from nova.graph.order import topological
from nova.graph.tensor import as_array, check_new_data

OTHER_TYPE = (
    "assign a new nn.Parameter to the module to change the shape, .to(dtype) changes the dtype"
)


@user_facing_class
class Parameter(Tensor):
    """A tensor that owns its array: contiguous, writable, at one address for its whole life.

    While it is trained on a device, the device has its values; reading `data` copies them back.
    """

    __slots__ = ("_array", "_derived", "_fetch", "_trained")
    _array: np.ndarray

    def __init__(
        self,
        data: Any,
        requires_grad: bool = True,
        *,
        dtype: Any = None,
        name: str | None = None,
        copy: bool = True,
    ):
        """A parameter with a copy of `data`; with `copy=False` it uses the array itself, if it can.

        It can if the array is contiguous, aligned and writable, and has the dtype.
        """
        array = as_array(data, dtype)
        if copy or not (array.flags.carray and array.flags.writeable):
            array = np.array(array, order="C", copy=True)
        type_ = _type_of(array)
        if requires_grad and not type_.dtype.is_float:
            raise GradientError(
                f"a parameter of {type_.dtype} cannot require gradients",
                hint="pass requires_grad=False, or give it a float type",
            )
        self._fetch: Callable[[], None] | None = None
        self._derived: str | None = None
        super().__init__(type_, requires_grad=requires_grad, name=name)
        self._array = array

    @property
    def requires_grad(self) -> bool:
        """Whether training updates it."""
        return self._trained

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        note_change()
        self._trained = value

    @property
    def data(self) -> np.ndarray:
        """The array, with the current values."""
        if self._fetch is not None:
            self._fetch()
        return self._array

    @data.setter
    def data(self, array: np.ndarray) -> None:
        if hasattr(self, "_array") and array is not self._array:
            check_new_data(self, array, OTHER_TYPE)
        self._replace(array)

    def _replace(self, array: np.ndarray) -> None:
        if self._fetch is not None and array is not self._array:
            raise StateDictError(
                f"the data of {self!r} is replaced while a step trains it on a device",
                where=str(user_location()),
                hint="load values with load_state_dict of the step",
            )
        self._array = array

    @property
    def host_array(self) -> np.ndarray:
        """The array as it is: while a step trains it on a device, it may have older values."""
        return self._array

    def name_after(self, path: str) -> None:
        """Take the module's name for it, unless it was created with a name."""
        if self.name is None or self.name == self._derived:
            self.name = self._derived = path

    def convert(self, new_dtype: DType) -> None:
        """Convert the array to another float type; other tensors of the graph do not change."""
        if self.dtype is new_dtype or not self.dtype.is_float:
            return
        generation[0] += 1
        self._replace(np.ascontiguousarray(converted(self.data, new_dtype)))
        self.type = TensorType(self.shape, new_dtype)

    def follow(self, fetch: Callable[[], None]) -> None:
        """Call `fetch` before each access to the array: it copies newer values into it."""
        generation[0] += 1
        self._fetch = fetch

    def follows(self, fetch: Callable[[], None]) -> bool:
        """Whether `fetch` is called before each access to the array."""
        return self._fetch is fetch

    def __getstate__(self) -> Any:
        """With the current values: no step trains a copy, or what is read from a file."""
        current = self.data  # copies values of a device into the array
        state: Any = super().__getstate__()
        return state[0], {**state[1], "_array": current, "_fetch": None}

    def __repr__(self) -> str:
        frozen = "" if self.requires_grad else " frozen"
        return f"<Parameter {self.type}{frozen}>"


@user_facing_class
class Buffer(Parameter):
    """An array of a module that is saved with it and never trained.

    `assign` sets it: a running mean or a counter. In a function that is traced (`nova.jit`,
    `nova.train_step`), every run of the compiled program sets it. A tensor that was computed from
    the buffer before keeps the value of that time.
    """

    __slots__ = ("_readers",)
    is_assignable: ClassVar[bool] = True

    def __init__(self, data: Any, *, dtype: Any = None, name: str | None = None):
        self._readers: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        super().__init__(data, requires_grad=False, dtype=dtype, name=name)

    def __repr__(self) -> str:
        return f"<Buffer {self.type}>"

    @property
    def requires_grad(self) -> bool:
        """False."""
        return False

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        """`unfreeze` sets it for all parameters: a buffer stays as it is."""

    def __getstate__(self) -> Any:
        """Without the readers: a copy of a buffer has its own."""
        state: Any = super().__getstate__()
        slots = {name: value for name, value in state[1].items() if name != "_readers"}
        return state[0], slots

    def note_reader(self, node: Tensor) -> None:
        if current_capture() is None:
            if not hasattr(self, "_readers"):
                self._readers = WeakValueDictionary()
            self._readers[id(node)] = node

    def _keep_old_value(self) -> None:
        """Let nodes that read the buffer, and have a value without a run, read a copy of it."""
        readers = [node for node in getattr(self, "_readers", {}).values() if has_values(node)]
        if readers:
            old = Tensor(self.type, data=self.data.copy())
            for node in readers:
                node.inputs = tuple(old if source is self else source for source in node.inputs)
        self._readers = WeakValueDictionary()

    @property
    def latest(self) -> Tensor:
        """Its value at this point of a traced function: the one assigned last."""
        capture = current_capture()
        return self if capture is None else capture.latest(self)

    def assign(self, value: Any) -> None:
        """Set the buffer to a value of its shape, converted to its dtype."""
        new = value if isinstance(value, Tensor) else tensor(value)
        if new.shape != self.shape:
            raise ShapeError(
                f"a buffer of {self.type} is set to a value of shape {new.shape}",
                where=str(user_location()),
                hint="the shape of a buffer does not change",
            )
        if current_region() is not None:
            raise ControlFlowError(
                f"{self!r} is assigned inside a {current_region()}: the assignment would happen "
                "once, whatever runs",
                where=str(user_location()),
                hint="carry the value through the loop or return it from the branch, and assign "
                "it outside",
            )
        new = cast(new, self.dtype)
        capture = current_capture()
        if capture is not None:
            capture.assign(self, new)
            return
        if not has_values(new):
            raise GraphError(
                f"{self!r} is set to a value that is only known when a program runs",
                where=str(user_location()),
                hint="call the module inside nova.jit or nova.train_step",
            )
        values = new.numpy()
        self._keep_old_value()
        self.data[...] = values


def has_values(value: Tensor) -> bool:
    """Whether a tensor can be computed now: it depends on no input of a program."""
    return not any(node.is_placeholder for node in topological([value]))


def _type_of(array: np.ndarray) -> TensorType:
    return TensorType(array.shape, dtype(array.dtype))
