"""`nova.from_torch`: a module of torch as a program of Nova, through `torch.export`.

In: a module and example arguments. Out: a `TorchProgram`: its graph of Nova's ops, to inspect, run,
differentiate and save. torch is an optional package, imported on the first call.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nova.api.compile import compile as compile_graph
from nova.api.compiled import Compiled
from nova.api.import_options import split_options
from nova.core.dlpack import as_numpy
from nova.core.sizes import Shape, SizeExpr, is_static_shape
from nova.core.sizes.binding import bind_sizes
from nova.core.user_facing import user_facing, user_facing_class
from nova.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ImportedProgramError,
    LoweringError,
    MissingFileError,
    MissingPackageError,
    NovaError,
    ShapeError,
    SignatureError,
    SymbolicSizeError,
    UnsupportedOpError,
)
from nova.graph.tensor import Tensor, placeholder
from nova.graph.tensor import tensor as make_tensor
from nova.ops import F

if TYPE_CHECKING:
    from nova.frontends.torch.sizes import TorchSizes


@user_facing_class
class TorchProgram:
    """A module of torch as a graph of Nova.

    Call it as the module; arguments and results are the module's pytrees of tensors. `params` are
    its parameters and buffers by name, over the module's memory. `function` builds the graph for
    tensors of Nova: it can be part of another graph, and `nova.grad` differentiates it. A module
    with dynamic sizes is one program with symbolic sizes, unless it has an op that takes static
    ones only: `explain` says so, and each shape is a program then.
    """

    def __init__(
        self,
        exported: Any,
        names: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ):
        self.exported = exported
        self._options = dict(options or {})
        self._names = names or {}
        self._least = 1  # size that the program with symbolic sizes takes
        self._reason = ""
        signature = exported.graph_signature
        # Arguments that are no tensors are those of the export.
        self._fixed = _fixed_arguments(signature)
        self._arguments = [s for s in signature.input_specs if s.kind.name == "USER_INPUT"]
        self._user_inputs = [s for s in self._arguments if s.arg.name not in self._fixed]
        self.params: dict[str, Tensor] = {}
        self._leaves: dict[str, Tensor] = {}
        for spec in signature.input_specs:
            if spec.kind.name != "USER_INPUT":
                self._leaves[spec.arg.name] = self._leaf(spec)
        self._programs: dict[Any, Compiled] = {}

    def _leaf(self, spec: Any) -> Tensor:
        tensors = {**self.exported.state_dict, **self.exported.constants}
        tensor = tensors[spec.target]
        trained = spec.kind.name == "PARAMETER" and tensor.requires_grad
        array = as_numpy(tensor.detach().contiguous(), spec.target)
        leaf = make_tensor(array, requires_grad=trained, name=spec.target)
        self.params[spec.target] = leaf
        return leaf

    # --- graphs ---------------------------------------------------------------------------------

    def function(self, *inputs: Tensor) -> Any:
        """The module's results for tensors of Nova, in the structure that the module returns."""
        shapes = tuple(tuple(x.shape) for x in inputs)
        sizes = None if all(x.type.is_static for x in inputs) else self._sizes
        module = self._module_for(shapes) if sizes is None else self.exported.graph_module
        results, _ = self._apply(module, inputs, sizes)
        return self._unflatten(results)

    def _module_for(self, shapes: tuple[Any, ...]) -> Any:
        """The exported graph; one with symbolic sizes is traced again for these sizes."""
        import torch

        from nova.api.torch_backend.specialize import has_symbols, specialized

        values = [n.meta["val"] for n in self._input_nodes]
        if not has_symbols(self.exported.graph):
            expected = tuple(tuple(v.shape) for v in values)
            if shapes != expected:
                raise ArgumentShapeError(
                    f"shapes {shapes}, the module was exported for {expected}",
                    hint="pass dynamic= to nova.from_torch for sizes that change",
                )
            return self.exported.graph_module
        sizes = iter(shapes)
        examples: list[Any] = []
        for node in self.exported.graph.nodes:
            if node.op == "placeholder" and node.name in self._fixed:
                examples.append(self._fixed[node.name])
            elif node.op == "placeholder":
                value = node.meta["val"]
                shape = next(sizes) if node in self._input_nodes else value.shape
                examples.append(torch.empty(shape, dtype=value.dtype))
        return specialized(self.exported.graph_module, examples)

    @cached_property
    def _input_nodes(self) -> list[Any]:
        names = {s.arg.name for s in self._user_inputs}
        nodes = [n for n in self.exported.graph.nodes if n.op == "placeholder"]
        return [n for n in nodes if n.name in names]

    @property
    def _sizes(self) -> TorchSizes:
        from nova.frontends.torch.sizes import TorchSizes

        return TorchSizes(self.exported.range_constraints, self._names, self._least)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the inputs, with symbolic sizes where `dynamic` says so."""
        return tuple(self._sizes.shape(n.meta["val"].shape) for n in self._input_nodes)

    def _apply(
        self, module: Any, inputs: Any, sizes: TorchSizes | None = None
    ) -> tuple[list[Any], dict[Tensor, Tensor]]:
        """User results that are tensors or sizes, and new values of buffers."""
        from nova.frontends.torch.importer import evaluate_graph

        feed = iter(inputs)
        arguments = [
            self._fixed[s.arg.name]
            if s.arg.name in self._fixed
            else next(feed)
            if s.kind.name == "USER_INPUT"
            else self._leaves[s.arg.name]
            for s in self.exported.graph_signature.input_specs
        ]
        results, updates = [], {}
        specs = self.exported.graph_signature.output_specs
        for spec, value in zip(specs, evaluate_graph(module, arguments, sizes), strict=True):
            if spec.kind.name == "USER_OUTPUT":
                if not _is_constant(spec):
                    results.append(value if isinstance(value, Tensor) else _size_tensor(value))
            elif spec.kind.name == "BUFFER_MUTATION":
                updates[self.params[spec.target]] = value
            else:
                raise ImportedProgramError(
                    f"the module changes an argument, {spec.target!r}",
                    hint="return the new value, or register the argument as a buffer",
                )
        return results, updates

    def _unflatten(self, results: Any) -> Any:
        """The results in the structure of the module's, with those that are no tensors."""
        from torch.utils._pytree import tree_unflatten

        feed, leaves = iter(results), []
        for spec in self.exported.graph_signature.output_specs:
            if spec.kind.name == "USER_OUTPUT":
                leaves.append(spec.arg.value if _is_constant(spec) else next(feed))
        return tree_unflatten(leaves, self.exported.call_spec.out_spec)

    # --- programs -------------------------------------------------------------------------------

    def compile(self, *shapes: tuple[int, ...], **options: Any) -> Compiled:
        """The compiled program; `options` are those of `nova.compile`, before those of the import.

        Its inputs are the leaves of the arguments, its params those of the module. `shapes` are the
        sizes of the inputs; those that the module was exported for by default, symbolic where it
        has dynamic sizes.
        """
        from nova.frontends.torch.dtypes import nova_dtype

        examples = [n.meta["val"] for n in self._input_nodes]
        chosen = tuple(map(tuple, shapes)) or self.shapes
        inputs = [
            placeholder(shape, nova_dtype(v.dtype), n.name)
            for shape, v, n in zip(chosen, examples, self._input_nodes, strict=True)
        ]
        if all(x.type.is_static for x in inputs):
            results, updates = self._apply(self._module_for(chosen), inputs)
        else:
            results, updates = self._apply(self.exported.graph_module, inputs, self._sizes)
        params = list(self.params.values())
        chosen_options = {**self._options, **options}
        return compile_graph(
            results, inputs=inputs, params=params, updates=updates, **chosen_options
        )

    @cached_property
    def program(self) -> Compiled:
        """The program for all sizes; for those of the example arguments if it takes static ones."""
        if self._symbolic is not None:
            return self._symbolic
        return self.compile(*(tuple(map(int, n.meta["val"].shape)) for n in self._input_nodes))

    @cached_property
    def _symbolic(self) -> Compiled | None:
        """The program with symbolic sizes; None if the sizes are static, or must be."""
        if all(is_static_shape(shape) for shape in self.shapes):
            return None
        for self._least in (1, 2):
            try:
                return self.compile()
            except (LoweringError, ShapeError, SymbolicSizeError, UnsupportedOpError) as error:
                self._reason = str(error)
        return None

    def explain(self) -> str:
        """Which sizes the programs take, and why they are static if they are."""
        if self._symbolic is not None:
            return f"one program for all sizes:\n{self._symbolic.signature}"
        if self._reason:
            return f"a program for each shape, since symbolic sizes fail: {self._reason}"
        return "the sizes are static"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run; results are tensors of torch over the memory that the program wrote."""
        from torch.utils._pytree import tree_flatten

        leaves, tree = tree_flatten((args, kwargs))
        if tree != self.exported.call_spec.in_spec:
            raise ArgumentTypeError(
                f"the arguments are {tree}, the module was exported for "
                f"{self.exported.call_spec.in_spec}",
                hint="call nova.from_torch again with arguments of this structure",
            )
        arrays = self._arrays(leaves)
        results = self._program_for(arrays)(*arrays)
        results = results if isinstance(results, tuple) else (results,)
        outputs = self.exported.graph_signature.output_specs
        specs = [s for s in outputs if s.kind.name == "USER_OUTPUT" and not _is_constant(s)]
        return self._unflatten(
            [
                r.item() if type(s.arg).__name__ == "SymIntArgument" else _as_torch(r)
                for s, r in zip(specs, results, strict=True)
            ]
        )

    def _arrays(self, leaves: list[Any]) -> list[np.ndarray]:
        """The tensors among the leaves of a call; the others must be those of the export."""
        arrays = []
        for i, (leaf, spec) in enumerate(zip(leaves, self._arguments, strict=True)):
            if spec.arg.name not in self._fixed:
                arrays.append(as_numpy(leaf, f"argument {i}"))
                continue
            expected = self._fixed[spec.arg.name]
            if not _is_same_value(leaf, expected):
                raise ArgumentTypeError(
                    f"argument {i}, {spec.arg.name!r}, is {leaf!r}, and was {expected!r} "
                    "when the module was exported",
                    hint="arguments that are no tensors are part of the program: "
                    "call nova.from_torch again for another value",
                )
        return arrays

    def _program_for(self, arrays: list[np.ndarray]) -> Compiled:
        if self._symbolic is not None and self._takes(arrays):
            return self._symbolic
        shapes = tuple(a.shape for a in arrays)
        if shapes not in self._programs:
            self._programs[shapes] = self.compile(*shapes)
        return self._programs[shapes]

    def _takes(self, arrays: list[np.ndarray]) -> bool:
        """Whether the sizes of a call are within the bounds of the program with symbolic sizes."""
        try:
            bind_sizes(
                [
                    (node.name, shape, array.shape)
                    for node, shape, array in zip(
                        self._input_nodes, self.shapes, arrays, strict=True
                    )
                ]
            )
        except SignatureError:
            return False
        return True

    def save(self, path: str | os.PathLike[str], weights: str | None = "embed") -> None:
        """Write `program` to a `.nova` file, with the module's weights."""
        self.program.save(os.fspath(path), weights=weights)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n.name}: {tuple(n.meta['val'].shape)}" for n in self._input_nodes)
        return f"<TorchProgram ({inputs}), {len(self.params)} params>"


def _fixed_arguments(signature: Any) -> dict[str, Any]:
    """The arguments of an export that are no tensors, by name."""
    fixed = {}
    for spec in signature.input_specs:
        if spec.kind.name != "USER_INPUT":
            continue
        if _is_constant(spec):
            fixed[spec.arg.name] = spec.arg.value
        elif type(spec.arg).__name__ != "TensorArgument":
            raise ImportedProgramError(
                f"argument {spec.arg.name!r} is a number that changes between calls",
                hint="pass a tensor, or leave the argument out of dynamic=",
            )
    return fixed


def _is_same_value(value: Any, expected: Any) -> bool:
    """Whether two Python values are of one type and equal; NaN is the same value as NaN."""
    is_equal = value == expected or (value != value and expected != expected)
    return type(value) is type(expected) and bool(is_equal)


def _is_constant(spec: Any) -> bool:
    """Whether an argument or result is a Python value of the export."""
    return type(spec.arg).__name__ == "ConstantArgument"


def _size_tensor(value: Any) -> Tensor:
    """A size as a tensor of one element."""
    if isinstance(value, SizeExpr):
        return F.extent(value=value)
    return make_tensor(np.asarray(value, np.int64))


def _as_torch(array: np.ndarray) -> Any:
    import torch

    if array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        # numpy has no such floats; torch gives them the names of ml_dtypes.
        bits = torch.from_numpy(array.view(f"i{array.itemsize}"))
        return bits.view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


@user_facing
def from_torch(module: Any, *args: Any, dynamic: Any = None, **kwargs: Any) -> TorchProgram:
    """Export a module of torch for arguments like `args` and `kwargs`.

    `dynamic` is the `dynamic_shapes` of `torch.export`: sizes that may change, and are symbolic in
    the program (`TorchProgram.explain`). Weights are arguments of the program, over the
    memory of the module's parameters; `save` puts them into the file. `target`, `fast_math`,
    `tune`, `run_mode`, `launch`, `precision`, `matmul_precision` and `max_workspace` are those of
    `nova.compile`, unless the module's forward has a parameter of that name, or takes `**kwargs`
    and the value is a tensor.
    """
    options, kwargs = split_options(getattr(module, "forward", module), kwargs)
    exported = exported_module(module, args, kwargs, dynamic)
    from nova.frontends.torch.sizes import dim_names

    return TorchProgram(exported, dim_names(exported, dynamic), options)


def exported_module(module: Any, args: Any, kwargs: Any = None, dynamic: Any = None) -> Any:
    """The `torch.export.ExportedProgram` of a module in the ops that the importer has rows for."""
    torch = _import_torch()
    if not isinstance(module, torch.nn.Module):
        raise ArgumentTypeError(
            f"from_torch takes a torch.nn.Module, not a {type(module).__name__}",
            hint="put a function into the forward of a module",
        )
    _check_call(module, args, kwargs or {})
    with _export_warnings():
        try:
            exported = torch.export.export(module, args, kwargs or None, dynamic_shapes=dynamic)
        except NovaError:
            raise
        except Exception as error:  # of the module's code, and many classes of torch
            is_packed = len(args) == 1 and isinstance(args[0], tuple | list)
            raise ImportedProgramError(
                f"torch.export fails on {type(module).__name__}: {type(error).__name__}: {error}",
                hint="pass the arguments one by one, as in a call: nova.from_torch(model, x, y)"
                if is_packed
                else "torch.export traces the module; its own error, above, names the line",
            ) from error
        return decomposed(exported)


def _check_call(module: Any, args: Any, kwargs: Any) -> None:
    """Check that `forward` can be called with these arguments."""
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ArgumentTypeError(
            f"the example arguments do not fit {type(module).__name__}.forward{signature}: {error}",
            hint="pass arguments like those of a call: nova.from_torch(model, x)",
        ) from None
    from torch.utils._pytree import tree_flatten

    for leaf in tree_flatten((args, kwargs))[0]:
        if isinstance(leaf, np.ndarray | Tensor):
            library = "numpy" if isinstance(leaf, np.ndarray) else "Nova"
            raise ArgumentTypeError(
                f"an example argument of {type(module).__name__}.forward is an array of {library}",
                hint="pass tensors of torch: torch.from_numpy(x)",
            )


def load_exported(path: str) -> Any:
    """The program in a file of `torch.export.save`, in the ops that the importer has rows for."""
    torch = _import_torch()
    if not os.path.exists(path):
        raise MissingFileError("the file of torch.export.save does not exist", where=path)
    try:
        exported = torch.export.load(path)
    except Exception as error:  # zip, json and torch's own error classes
        raise ImportedProgramError(
            f"this is not a file of torch.export.save: {error}", where=path
        ) from None
    return decomposed(exported)


def decomposed(exported: Any) -> Any:
    """An exported program in the ops that the importer has rows for."""
    from nova.frontends.torch.decompositions import decompositions

    with _export_warnings():
        return exported.run_decompositions(decompositions())


@contextmanager
def _export_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        # torch copies specs of pytrees of its own deprecated class.
        warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
        yield


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingPackageError(
            f"a torch program needs torch, which cannot be imported: {error}",
            hint="pip install -e '.[torch]' in the clone of Nova",
        ) from None
    return torch
