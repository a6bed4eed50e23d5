"""`Tensor`: a node of the graph and the user's handle on it.

A tensor is a leaf (with data, or a placeholder whose data are supplied at run time) or the result
of an op on other tensors. Tensors are immutable except for `name` and `grad`.
`nova.graph.functions` adds the methods and operators from the op table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nova.core.dlpack import as_numpy, is_array
from nova.core.dtypes import DType, TensorType, complex64, converted, dtype, f32, i64
from nova.core.dtypes import dtype as as_dtype
from nova.core.location import Location, user_location
from nova.core.sizes import SizeExpr, is_static, known_equal, known_less
from nova.core.user_facing import user_facing
from nova.errors import (
    ArgumentTypeError,
    AttributeValueError,
    ConcreteValueError,
    DTypeError,
    GradientError,
    GraphError,
    ItemAssignmentError,
    ShapeError,
    SymbolicSizeError,
)
from nova.graph.capture import current_capture
from nova.graph.numpy_protocol import NumpyProtocol
from nova.graph.other_names import TENSOR, no_attribute
from nova.graph.spelling import TorchMethods
from nova.ops import OPS, Op

_recording: ContextVar[bool] = ContextVar("nova_recording", default=True)
_region: ContextVar[int] = ContextVar("nova_checkpoint_region", default=0)
_device: ContextVar[str] = ContextVar("nova_device", default="")
_evaluator: list[Callable[[Tensor], np.ndarray]] = []
_serials = count()


if TYPE_CHECKING:
    from nova.graph.control.regions import Region
    from nova.graph.op_methods import TensorMethods  # a stub: the methods from the op table
else:
    TensorMethods = object


class Tensor(TorchMethods, NumpyProtocol, TensorMethods):
    """A value of the program: `op` applied to `inputs`, or a leaf when `op` is None."""

    __slots__ = (
        "__weakref__",
        "_data",
        "_value",
        "attrs",
        "device",
        "fixed",
        "grad",
        "inputs",
        "location",
        "name",
        "op",
        "origin",
        "region",
        "regions",
        "requires_grad",
        "result_types",
        "serial",
        "stopped",
        "type",
        "weak",
    )

    def __init__(
        self,
        type_: TensorType,
        *,
        op: Op | None = None,
        inputs: tuple[Tensor, ...] = (),
        attrs: dict[str, Any] | None = None,
        data: np.ndarray | None = None,
        requires_grad: bool = False,
        name: str | None = None,
        weak: bool = False,
        fixed: bool = False,
    ):
        self.type = type_
        self.op = op
        self.inputs = inputs
        self.attrs = attrs or {}
        self._data = data
        self.name = name
        self.grad: Tensor | None = None
        self.location: Location = user_location()
        self.stopped = not _recording.get()
        self.region = _region.get()
        self.device = _device.get()
        """`cpu` for an op pinned to the host; empty if the program's target decides."""
        self.requires_grad = requires_grad
        self.weak = weak
        """A placeholder of a Python number: like the number, it takes the operands' dtype."""
        self.fixed = fixed
        """A leaf whose array no other code can reach: its value is fixed, so it is a literal."""
        self.serial = next(_serials)
        """Later tensors have larger numbers: those of a region came after its trace began."""
        self.regions: tuple[Region, ...] = ()
        self.result_types: tuple[TensorType, ...] = ()
        """Of an op with regions or a call: `result` ops select one; `type` is that of the first."""
        self.origin: tuple[Any, ...] = ()
        """Under NOVA_CHECK=1, the vjps that gave this gradient: see `gradients.Application`."""
        self._value: np.ndarray | None = None
        for source in inputs:
            if source.is_assignable:
                source.note_reader(self)

    is_assignable: ClassVar[bool] = False
    """Whether its value may be set later, as that of a `nova.nn.Buffer`."""

    def note_reader(self, node: Tensor) -> None:
        """A node reads the value that this tensor has now."""

    if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(repr(type(self).__name__), name, dir(type(self)), TENSOR)

    # --- properties -----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> Any:
        return self.type.size

    @property
    def is_leaf(self) -> bool:
        return self.op is None

    @property
    def is_placeholder(self) -> bool:
        return self.op is None and self.data is None

    @property
    def T(self) -> Tensor:
        return self.transpose()

    def __repr__(self) -> str:
        role = self.op.name if self.op else "placeholder" if self.data is None else "leaf"
        name = f" {self.name!r}" if self.name else ""
        return f"<Tensor{name} {self.type} {role}>"

    # --- values ---------------------------------------------------------------------------------

    @property
    def data(self) -> np.ndarray | None:
        """The array of a leaf; None for a placeholder and for the result of an op."""
        return self._data

    @data.setter
    def data(self, array: np.ndarray) -> None:
        if self.op is not None:
            raise GraphError(
                f"the data of {self!r} is set, and a run would compute it again",
                where=str(user_location()),
                hint="set the data of a leaf, or continue with nova.tensor(array)",
            )
        check_new_data(self, array, "make a new tensor: nova.tensor(array)")
        self._data = array

    @user_facing
    def numpy(self) -> np.ndarray:
        """The value: compiles and runs the graph it needs."""
        capture = current_capture()
        if capture is not None:
            capture.note_reads(self)
        if self.data is not None:
            return self.data
        if self._value is None:
            self._value = _evaluator[0](self)
        return self._value

    @user_facing
    def item(self) -> Any:
        """The value of a one-element tensor as a Python number."""
        if not known_equal(self.size, 1):
            raise ConcreteValueError(
                f"item() of a tensor of shape {self.shape}",
                where=str(user_location()),
                hint="reduce or index it first",
            )
        return self.numpy().reshape(()).item()

    def __float__(self) -> float:
        self._require_number("float")
        return float(self.item())

    def __int__(self) -> int:
        self._require_number("int")
        return int(self.item())

    def _require_number(self, function: str) -> None:
        if self._is_traced():
            dtype = "f32" if function == "float" else "i64"
            raise ConcreteValueError(
                f"{function}() of {self!r}, which has no value while a function is traced",
                where=str(user_location()),
                hint=f"compute with the tensor itself (x.astype({dtype!r}) converts it), or return "
                f"it and call {function}() on the result",
            )

    def __setitem__(self, index: Any, value: Any) -> None:
        raise ItemAssignmentError(
            f"an assignment to elements of {self!r}: tensors are values, and do not change",
            where=str(user_location()),
            hint="make a new tensor: x = nova.where(mask, value, x), x = nova.index_put(x, (i, j), "
            "value) or x = nova.dynamic_update_slice(x, value, starts)",
        )

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise ConcreteValueError(
                f"a {self.dtype} tensor is not an index", where=str(user_location())
            )
        if self._is_traced():
            raise ConcreteValueError(
                f"{self!r} is used as a number, and has no value while a function is traced",
                where=str(user_location()),
                hint="write a loop over range(n) as nova.fori_loop(0, n, body, initial), and x[n] "
                "of a traced n as nova.dynamic_slice or nova.take",
            )
        return int(self.item())

    def __bool__(self) -> bool:
        if self._is_traced():
            raise ConcreteValueError(
                f"the truth of {self!r} is not known while a function is traced",
                where=str(user_location()),
                hint="write the branch as nova.cond(x, lambda: ..., lambda: ...), a loop as "
                "nova.while_loop(condition, body, initial), a choice of elements as nova.where",
            )
        return bool(self.item())

    def _is_traced(self) -> bool:
        """Whether its value is not known: it depends on arguments that come when a program runs."""
        if self.data is not None or self._value is not None:
            return False
        from nova.graph.order import topological

        return any(node.is_placeholder for node in topological([self]))

    def __len__(self) -> int:
        if not self.shape:
            raise ConcreteValueError("a 0-d tensor has no length", where=str(user_location()))
        if not is_static(self.shape[0]):
            raise SymbolicSizeError(
                f"len() of {self!r}: the size {self.shape[0]} is known at run time",
                where=str(user_location()),
                hint="use its shape[0], which is a symbolic size",
            )
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self.numpy()
        if dtype is not None and value.dtype != dtype:
            return value.astype(dtype)
        return value.copy() if copy else value

    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """torch calls this for its functions on tensors of Nova."""
        name = getattr(function, "__name__", str(function))
        raise ArgumentTypeError(
            f"{name} of torch is called with a tensor of Nova",
            where=str(user_location()),
            hint=(f"write nova.{name}(...), or " if name in OPS else "write ")
            + "torch.from_numpy(x.numpy()) outside of a trace; nova.from_torch imports models",
        )

    @user_facing
    def backward(self) -> None:
        """`nova.backward(self)`."""
        from nova.graph.autodiff import backward

        backward(self)


def check_new_data(leaf: Tensor, array: Any, other_type: str) -> None:
    """An array that replaces the data of a leaf has its shape and dtype.

    `other_type` is the hint for the user who needs another shape or dtype.
    """
    where = str(user_location())
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(
            f"the data of {leaf!r} is replaced by {type(array).__name__}, not a numpy array",
            where=where,
            hint="write .data[...] = values to copy values into the array",
        )
    if array.shape != leaf.shape:
        raise ShapeError(
            f"the data of {leaf!r} is replaced by an array of shape {array.shape}",
            where=where,
            hint=other_type,
        )
    if array.dtype != leaf.dtype.numpy:
        raise DTypeError(
            f"the data of {leaf!r} is replaced by an array of {array.dtype}",
            where=where,
            hint=f"write .data[...] = array to convert the values; or {other_type}",
        )


def next_serial() -> int:
    """The serial number of a tensor created now."""
    return next(_serials)


def set_evaluator(evaluate: Callable[[Tensor], np.ndarray]) -> None:
    """Register how `Tensor.numpy` computes a value; the compiler does this on import."""
    _evaluator[:] = [evaluate]


@user_facing
def tensor(
    data: Any, *, dtype: Any = None, requires_grad: bool = False, name: str | None = None
) -> Tensor:
    """A leaf with data: anything numpy or DLPack accepts. Python floats become f32."""
    array = as_array(data, dtype)
    type_ = TensorType(array.shape, _dtype_of(array))
    if requires_grad and not type_.dtype.is_differentiable:
        raise GradientError(
            f"a {type_.dtype} tensor cannot require gradients", hint="cast it to a float type"
        )
    # During a trace, Python numbers are converted to an array immediately.
    fixed = current_capture() is not None and not (isinstance(data, Tensor) or is_array(data))
    return Tensor(type_, data=array, requires_grad=requires_grad, name=name, fixed=fixed)


def placeholder(shape: Any, dtype_: Any, name: str | None = None) -> Tensor:
    """A leaf without data, for tracing: its value is supplied when the program runs."""
    return Tensor(TensorType((), dtype(dtype_)).with_shape(shape), name=name)


@user_facing
def input(shape: Any, dtype: Any = f32, *, name: str | None = None) -> Tensor:
    """A placeholder for `inputs` of `nova.compile`: its array comes when the program runs.

    Sizes are ints, or symbolic: `nova.input((nova.dim("B"), 784))` (docs/dynamic-shapes.md).
    """
    sizes = shape if isinstance(shape, tuple | list) else (shape,)
    for n in sizes:
        is_size = isinstance(n, SizeExpr | int | np.integer) and not isinstance(n, bool)
        if not is_size or known_less(n, 0):
            raise AttributeValueError(
                f"{n!r} is not a size of an input",
                where=str(user_location()),
                hint='a size is a non-negative int, or made of nova.dim("B")',
            )
    return Tensor(TensorType((), as_dtype(dtype)).with_shape(sizes), name=name)


def as_array(data: Any, dtype_: Any = None) -> np.ndarray:
    """`data` as a numpy array, without a copy if possible."""
    target = None if dtype_ is None else dtype(dtype_)
    if isinstance(data, Tensor):
        array = data.numpy()
    elif is_array(data):
        array = as_numpy(data, "the data of a tensor")
    else:
        array = _from_python(data)
    _dtype_of(array if target is None else np.empty(0, target.numpy))
    return array if target is None else converted(array, target)


def _from_python(data: Any) -> np.ndarray:
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise ArgumentTypeError(f"{data!r} is not an array: {error}") from error
    if array.dtype == object or array.dtype.kind in "USV":
        raise ArgumentTypeError(
            f"a {type(data).__name__} is not an array of numbers", hint="pass a numpy array"
        )
    # Python numbers have no width: floats are f32, like most model parameters.
    if array.dtype == np.complex128:
        return array.astype(np.complex64)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _dtype_of(array: np.ndarray) -> DType:
    return dtype(array.dtype)


def number_type(value: bool | int | float | complex) -> DType:
    """The dtype of a Python number without a tensor operand."""
    if isinstance(value, complex):
        return complex64
    return dtype(bool) if isinstance(value, bool) else i64 if isinstance(value, int) else f32


@user_facing
@contextmanager
def no_grad() -> Iterator[None]:
    """No gradient flows through nodes built inside."""
    token = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(token)


@user_facing
def device(name: str) -> AbstractContextManager[None]:
    """Ops created inside run on the host (`cpu`), or on the program's target (`cuda`).

    Their gradients run there as well. In a program for a CPU this has no effect.
    """
    if name not in ("cpu", "cuda"):
        raise AttributeValueError(
            f"there is no device {name!r} to pin ops to",
            where=str(user_location()),
            hint="'cpu' keeps them on the host, 'cuda' leaves them to the program's target",
        )
    return on_device("cpu" if name == "cpu" else "")


@contextmanager
def on_device(device: str) -> Iterator[None]:
    """Nodes created inside have this `device`; an empty one is that of the program."""
    token = _device.set(device)
    try:
        yield
    finally:
        _device.reset(token)


@contextmanager
def checkpoint_region(region: int) -> Iterator[None]:
    """Nodes created inside belong to checkpoint region `region` (0 is none)."""
    token = _region.set(region)
    try:
        yield
    finally:
        _region.reset(token)
