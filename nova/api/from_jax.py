"""`nova.from_jax`: a function of jax, compiled by Nova.

In: a function, or the result of `jax.jit`, and example arguments. Out: a `JaxProgram`, which is
called as the function is. jax is an optional package, imported on the first call.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nova.api.compile import check_run_mode, local_target
from nova.api.import_options import FILE_OPTIONS, split_options
from nova.api.translate import Translation, translate
from nova.core.sizes.text import print_dim
from nova.core.user_facing import user_facing
from nova.errors import (
    ArgumentTypeError,
    ImportedProgramError,
    MissingPackageError,
    SymbolicImportError,
)
from nova.runtime.model import Model

# Programs of one function for different sizes; the least recently used one goes first.
_MOST_PROGRAMS = 64
_DEFAULT_TARGETS = ("cpu",)


class JaxProgram:
    """A compiled function of jax: takes its arguments, returns its results as numpy arrays.

    Arguments and results are the function's pytrees. `translation` is the file with the text of
    every stage; a function with symbolic sizes has one for all of them. If it needs static sizes
    (`explain()` says why), there is none, and each new combination of sizes is compiled once.
    """

    def __init__(self, exported: Any, options: Mapping[str, Any], device: str | None = None):
        self.exported = exported
        self._options = options
        self._device = device
        self._models: OrderedDict[tuple[tuple[int, ...], ...], Model] = OrderedDict()
        self._reason = ""
        self.translation: Translation | None = None
        try:
            self.translation = translate(exported.mlir_module(), **options)
        except SymbolicImportError as error:
            self._reason = str(error)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import jax

        leaves, tree = jax.tree.flatten((args, kwargs))
        if tree != self.exported.in_tree:
            raise ArgumentTypeError(
                f"the arguments are {tree}, the function was compiled for {self.exported.in_tree}",
                hint="call nova.from_jax again with arguments of this structure",
            )
        # jax drops arguments that the program does not use.
        types = self.exported.in_avals
        arrays = [_array(leaves[i], types[i].dtype) for i in self.exported.module_kept_var_idx]
        results = (self._model_for(arrays) if self._reason else self.model)(*arrays)
        if not isinstance(results, tuple):
            results = (results,)
        return jax.tree.unflatten(self.exported.out_tree, results)

    @cached_property
    def model(self) -> Model:
        """The loaded program, which takes flat lists of arrays."""
        return self._file("to load").load(self._device)

    @user_facing
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to a `.nova` file; its arguments are the leaves of the pytrees."""
        self._file("to save").save(path)

    def explain(self) -> str:
        """Which sizes the program takes, and why each call is compiled for its own if it is."""
        if self._reason:
            return f"compiled for the sizes of each call: {self._reason}"
        dims = self.model.signature.dims
        if dims:
            return f"one program for all sizes: {', '.join(map(print_dim, dims))}"
        return "the sizes are static"

    def _model_for(self, arrays: Sequence[np.ndarray]) -> Model:
        """The program for the sizes of a call."""
        shapes = tuple(array.shape for array in arrays)
        model = self._models.pop(shapes, None)
        if model is None:
            text = self.exported.mlir_module()
            model = translate(text, args=arrays, **self._options).load(self._device)
        self._models[shapes] = model
        if len(self._models) > _MOST_PROGRAMS:
            self._models.popitem(last=False)
        return model

    def _file(self, purpose: str) -> Translation:
        if self.translation is None:
            raise ImportedProgramError(
                f"no program for all sizes {purpose}: {self._reason}",
                hint="call nova.from_jax with arguments of static sizes",
            )
        return self.translation

    def __repr__(self) -> str:
        files = self.translation or f"for {len(self._models)} combinations of sizes"
        return f"<JaxProgram {self.exported.fun_name}, {files}>"


@user_facing
def from_jax(
    function: Callable[..., Any],
    *args: Any,
    targets: str | Sequence[str] = _DEFAULT_TARGETS,
    fast_math: bool | None = None,
    tune: float | None = None,
    **kwargs: Any,
) -> JaxProgram:
    """Compile a function of jax for arguments like `args` and `kwargs`.

    `function` may be jitted: static and donated arguments are those of its `jax.jit`, and calls of
    the program leave static arguments out. It may be a `jax.export.Exported` as well, also one that
    `jax.export.deserialize` read, without `args`. Arguments are pytrees of arrays, numbers or
    `jax.ShapeDtypeStruct`, whose sizes may be those of `jax.export.symbolic_shape`. Gradients are
    those that jax takes: `nova.from_jax(jax.grad(f), x)`. `targets`, `fast_math` and `tune` are
    those of `nova.translate`; `target` (one of them), `run_mode` ("sim" runs the code of a GPU on
    the simulator) and `launch` are those of `nova.compile`, unless the function has a parameter of
    that name, or takes `**kwargs` and the value is an array.
    """
    named: dict[str, Any] = {"targets": targets, "fast_math": fast_math, "tune": tune}
    chosen = {k: v for k, v in named.items() if v is not None and v is not _DEFAULT_TARGETS}
    chosen, kwargs = split_options(function, {**kwargs, **chosen}, (*FILE_OPTIONS, *named))
    target, run_mode = chosen.get("target"), chosen.get("run_mode", "native")
    check_run_mode(run_mode)
    exported = exported_function(function, args, kwargs)
    options = {
        "targets": (
            chosen.get("targets", _DEFAULT_TARGETS) if target is None else local_target(target)
        ),
        "fast_math": chosen.get("fast_math"),
        "tune": chosen.get("tune"),
        "launch": chosen.get("launch"),
    }
    return JaxProgram(exported, options, "sim" if run_mode == "sim" else None)


def exported_function(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The `jax.export.Exported` of a function for arguments like these."""
    try:
        import jax
        from jax import export
    except ImportError as error:
        raise MissingPackageError(
            f"nova.from_jax needs jax, which cannot be imported: {error}",
            hint="pip install jax",
        ) from None
    if isinstance(function, export.Exported):
        if args or kwargs:
            raise ArgumentTypeError(
                "an exported function of jax has the types of its arguments",
                hint="pass it alone: nova.from_jax(exported)",
            )
        return _one_device(function)
    if not callable(function):
        raise ArgumentTypeError(
            f"from_jax takes a function or a jax.export.Exported, not a {type(function).__name__}"
        )
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    try:
        exported = export.export(jitted)(*args, **kwargs)
    except NotImplementedError as error:  # callbacks of the host, which a file cannot have
        raise ImportedProgramError(
            f"jax does not export {getattr(function, '__name__', 'the function')}: {error}",
            hint="callbacks (jax.debug.print, pure_callback) run Python: leave them out",
        ) from error
    return _one_device(exported)


def _one_device(exported: Any) -> Any:
    if exported.nr_devices != 1:
        raise ImportedProgramError(
            f"the function runs on {exported.nr_devices} devices",
            hint="Nova compiles programs for one device: trace it without shardings",
        )
    return exported


def _array(leaf: Any, dtype: Any) -> np.ndarray:
    """A leaf of the arguments as an array; jax may have narrowed 64-bit types to 32 bits."""
    import jax

    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf)
    if array.dtype != dtype and jax.dtypes.canonicalize_dtype(array.dtype) == dtype:
        return array.astype(dtype)
    return array
