"""The param values of a program: from its file, an external weights file, or the graph.

`nova.load` calls `read_values`, `Model` reads `ParamValues` if a run names no params, and
`Model.save` calls `lay_out_values`. A value in a file is a read-only array on the file's memory;
params that runs change get private copies, so that a loaded training step can train.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from nova.artifact.files import check_path, open_regular
from nova.artifact.format import Artifact, load_artifact
from nova.artifact.manifest import Manifest, TensorSpec, WeightSpec, WeightsSpec
from nova.core.dlpack import as_numpy
from nova.core.dtypes import array_dtype
from nova.errors import ArtifactError, NovaError, WeightsError, unreadable
from nova.frontends.safetensors import Layout, lay_out, read_safetensors
from nova.runtime.arrays import take_argument

SUFFIX = ".safetensors"
# The number of SHA-256 digits in the name of a weights file.
_DIGITS = 12
# The prefix of the names of a model's parameters in a training step.
_MODEL = "model."
# The length field before a safetensors header.
_PREFIX = 8


class ParamValues:
    """The values of a program's params, in the order of the signature; None if missing.

    `kind` is that of the file they were read from, and "graph" for the arrays of the compiled
    tensors: those are used in place, and a run that updates params changes them.
    """

    def __init__(
        self,
        params: Sequence[TensorSpec],
        arrays: Sequence[np.ndarray | None],
        origin: str,
        fetch: Callable[[], None] | None = None,
    ):
        self.params = tuple(params)
        self.kind = origin
        self._fetch = fetch
        self._arrays_before_copy = tuple(arrays)
        self.is_complete = all(array is not None for array in self._arrays_before_copy)
        self._lock = threading.Lock()
        self._arrays: tuple[Any, ...] | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the params without a value."""
        pairs = zip(self.params, self._arrays_before_copy, strict=True)
        return tuple(spec.name for spec, array in pairs if array is None)

    def get(self) -> tuple[Any, ...]:
        """The arrays that runs use, the same ones at every call.

        `fetch` updates their values, if they are trained on a device.
        """
        if self._fetch is not None:
            self._fetch()
        if self._arrays is None:
            with self._lock:
                if self._arrays is None:
                    self._arrays = tuple(
                        map(self._copy_donated, self.params, self._arrays_before_copy)
                    )
        return self._arrays

    def _copy_donated(self, spec: TensorSpec, array: np.ndarray | None) -> Any:
        if array is None or self.kind == "graph" or not spec.donated:
            return array
        return array.copy()

    def host(self) -> tuple[np.ndarray | None, ...]:
        """The values in host memory."""
        return self.get()

    def named(self) -> dict[str, np.ndarray]:
        """The available values, by name."""
        pairs = zip(self.params, self.host(), strict=True)
        return {spec.name: array for spec, array in pairs if array is not None}


def param_specs(manifest: Manifest) -> list[TensorSpec]:
    """The params among the arguments of a program."""
    return [spec for spec in manifest.args if spec.role == "param"]


def no_values(manifest: Manifest) -> ParamValues:
    """The values of a program without stored values."""
    params = param_specs(manifest)
    return ParamValues(params, [None] * len(params), "none")


# --- from files -----------------------------------------------------------------------------------


def read_values(artifact: Artifact, path: Path | None, weights: str | Path | None) -> ParamValues:
    """The values for the file `path`; `weights` names their safetensors file."""
    manifest = artifact.manifest
    storage = manifest.weights.kind
    if storage == "embedded":
        if weights is not None:
            raise WeightsError(
                "the file has its weights inside, and others were given",
                where=str(path),
                hint="pass other values to a run: run(inputs, params)",
            )
        return _views(manifest, artifact.weights(), storage)
    if storage == "external":
        external = None if path is None else _find_external(path, manifest.weights.sha256)
        return _read_external(manifest, check_path(weights) if weights is not None else external)
    return no_values(manifest) if weights is None else _read_by_name(manifest, check_path(weights))


def name_sibling_file(path: Path, digest: str) -> Path:
    """The file with the external weights of the program at `path`.

    Its name contains the hash of its content: a save never overwrites the weights of the existing
    program, so a kill between the two files leaves the old pair.
    """
    return path.with_name(f"{path.stem}-{digest[:_DIGITS]}{SUFFIX}")


def _find_external(path: Path, digest: str) -> Path:
    """The weights file: next to the program, or next to the target of a link to the program."""
    candidate = name_sibling_file(path, digest)
    if not candidate.exists() and path.is_symlink():
        linked = name_sibling_file(Path(os.path.realpath(path)), digest)
        return linked if linked.exists() else candidate
    return candidate


def find_sibling_file(path: Path) -> Path | None:
    """The weights file of the program that is now at `path`; None if it has none."""
    try:
        if not any(_is_sibling_file(path, name) for name in os.listdir(path.parent)):
            return None  # the usual case: the program need not be read
        spec = load_artifact(path).manifest.weights
    except (OSError, ArtifactError):
        return None
    candidate = name_sibling_file(path, spec.sha256)
    return candidate if _is_sibling_file(path, candidate.name) and candidate.is_file() else None


def _is_sibling_file(path: Path, name: str) -> bool:
    pattern = f"{re.escape(path.stem)}-[0-9a-f]{{{_DIGITS}}}{re.escape(SUFFIX)}"
    return re.fullmatch(pattern, name) is not None


def _views(manifest: Manifest, pieces: Mapping[int, memoryview], origin: str) -> ParamValues:
    arrays = [
        _view(spec, pieces[index]) if index in pieces else None
        for index, spec in enumerate(manifest.args)
        if spec.role == "param"
    ]
    return ParamValues(param_specs(manifest), arrays, origin)


def _view(spec: TensorSpec, piece: memoryview) -> np.ndarray:
    array = np.frombuffer(piece, np.uint8).view(array_dtype(spec.dtype).numpy).reshape(spec.shape)
    array.flags.writeable = False
    return array


def _read_external(manifest: Manifest, path: Path | None) -> ParamValues:
    """Views of the whole file, read once: it cannot change between its check and its use."""
    if path is None:
        raise WeightsError(
            "the values of the params are in a file of their own",
            hint="nova.load(path, weights=...) says where it is",
        )
    try:
        with open_regular(path) as file:
            data = np.fromfile(file, np.uint8)
    except OSError as error:
        raise unreadable(
            WeightsError,
            error,
            "the values of the params are in a file that cannot be read",
            str(path),
            "put it next to the program, or pass its path: nova.load(path, weights=...)",
        ) from error
    view = data.data
    if sha256(view).hexdigest() != manifest.weights.sha256:
        raise WeightsError(
            "these are not the weights that the program was saved with: the SHA-256 differs",
            where=str(path),
            hint="copy both files again, or save both again",
        )
    start = _PREFIX + int.from_bytes(view[:_PREFIX], "little")
    pieces = {}
    for weight in manifest.weights.tensors:
        piece = view[start + weight.offset : start + weight.offset + weight.nbytes]
        if len(piece) != weight.nbytes:
            raise WeightsError(
                f"param {manifest.args[weight.arg].name!r} lies outside of the file",
                where=str(path),
            )
        pieces[weight.arg] = piece
    return _views(manifest, pieces, "external")


def _read_by_name(manifest: Manifest, path: Path) -> ParamValues:
    params = param_specs(manifest)
    tensors = read_safetensors(path)
    values = choose_values(params, tensors, [None] * len(params), str(path))
    for array in values:
        array.flags.writeable = False
    return ParamValues(params, values, "none")  # the program's own file has none


# --- selecting and writing ------------------------------------------------------------------------


def choose_values(
    params: Sequence[TensorSpec],
    supplied: Mapping[str, Any] | Sequence[Any] | None,
    defaults: Sequence[np.ndarray | None],
    where: str | None = None,
) -> list[np.ndarray]:
    """One array a param: from `supplied`, by name or in order, else from `defaults`."""
    names = [spec.name for spec in params]
    if supplied is None:
        supplied = {}
    elif not isinstance(supplied, Mapping):
        if len(supplied) != len(params):
            raise WeightsError(
                f"{len(supplied)} values for {len(params)} params: {', '.join(names) or 'none'}",
                where=where,
            )
        supplied = dict(zip(names, supplied, strict=True))
    supplied = fit_names(supplied, names)
    unknown = [name for name in supplied if name not in names]
    if unknown:
        raise WeightsError(
            f"the program has no param {listed(unknown)}",
            where=where,
            hint=f"it has {listed(names) if names else 'none'}"
            + ("; params=[...] gives values in that order" if len(supplied) == len(names) else ""),
        )
    chosen = [supplied.get(spec.name, array) for spec, array in zip(params, defaults, strict=True)]
    missing = [name for name, value in zip(names, chosen, strict=True) if value is None]
    if missing:
        raise WeightsError(
            f"there is no value for param {listed(missing)}",
            where=where,
            hint="pass params=, a list in the order of the signature or a dict by name",
        )
    return [take_argument(_plain(spec), value) for spec, value in zip(params, chosen, strict=True)]


def fit_names(supplied: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The values under the names of the program.

    A training step calls the parameters of its model `model.<name>`, the model itself does not. A
    state dict has a tied parameter under every name, the program under its first; a file of the
    state dict has copies of it.
    """
    param_names = set(names)
    fitted: dict[str, Any] = {}
    for name, value in supplied.items():
        alias = name.removeprefix(_MODEL) if name.startswith(_MODEL) else _MODEL + name
        fitted[
            alias
            if name not in param_names and alias in param_names and alias not in supplied
            else name
        ] = value
    matched = [value for name, value in fitted.items() if name in param_names]
    return {
        name: value
        for name, value in fitted.items()
        if name in param_names or not any(_is_tied(value, alias) for alias in matched)
    }


def _is_tied(value: Any, tensor: Any) -> bool:
    """Whether two values are one parameter: the same object or memory, or equal copies in a file.

    Copies are recognized by their bytes. Constant arrays do not count: two biases may both be zero.
    """
    if value is tensor:
        return True
    if tuple(getattr(value, "shape", ())) != tuple(getattr(tensor, "shape", (None,))):
        return False
    try:
        a, b = (as_numpy(v, "a value") for v in (value, tensor))
    except NovaError:
        return False  # the user of the value reports its type
    if a.dtype != b.dtype or a.size == 0:
        return False
    if a.ctypes.data == b.ctypes.data and a.strides == b.strides:
        return True
    first, second = (bytes_of(np.ascontiguousarray(v)) for v in (a, b))
    size = a.dtype.itemsize
    return first[size:] != first[:-size] and first == second


def lay_out_values(manifest: Manifest, values: Sequence[np.ndarray]) -> tuple[Layout, WeightsSpec]:
    """The safetensors file with the values of all params, and its manifest entry."""
    indices = [i for i, spec in enumerate(manifest.args) if spec.role == "param"]
    names = [manifest.args[i].name for i in indices]
    if len(set(names)) < len(names):
        raise WeightsError(
            "two params have one name, and a safetensors file holds arrays by name",
            hint="use weights='embed', or give them names of their own",
        )
    layout = lay_out(dict(zip(names, values, strict=True)))
    digest = sha256()
    for piece in layout.pieces():
        digest.update(piece)
    tensors = [
        WeightSpec(i, layout.offsets[name], array.nbytes)
        for i, name, array in zip(indices, names, values, strict=True)
    ]
    tensors.sort(key=lambda weight: (weight.offset, weight.nbytes))
    return layout, WeightsSpec("external", digest.hexdigest(), tuple(tensors))


def bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a contiguous array; numpy itself gives none for bf16."""
    return array.reshape(-1).view(np.uint8).data


def _plain(spec: TensorSpec) -> TensorSpec:
    """The param as read-only: a value that is saved may be read-only or strided."""
    return TensorSpec(spec.name, spec.shape, spec.dtype, spec.role)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names for a message, truncated."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more
