"""Reads an ONNX model: a path, bytes or a `ModelProto`, with its external data.

Out: an `OnnxModel`, whose initializers are read when the importer asks for them. External data are
mapped, not copied. A location that is absolute, leaves the folder of the model or is not a regular
file is refused: a model must not read other files of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nova.errors import OnnxError, unreadable
from nova.frontends.onnx.element_types import DTYPES, STRING
from nova.frontends.onnx.package import onnx_package

OLDEST_OPSET = 1
_EXTERNAL = 1
_MOST_ELEMENTS = 1 << 40


@dataclass(frozen=True)
class OnnxModel:
    """A parsed model: its protobuf, its name in messages and the folder of its external data."""

    proto: Any
    name: str
    folder: Path | None

    def opsets(self) -> dict[str, int]:
        """The version of each operator set that the model uses; OnnxError for unusable ones."""
        versions = {
            "" if entry.domain == "ai.onnx" else entry.domain: int(entry.version)
            for entry in self.proto.opset_import
        }
        newest = onnx_package().defs.onnx_opset_version()
        version = versions.get("")
        if version is not None and not OLDEST_OPSET <= version <= newest:
            raise OnnxError(
                f"the model uses opset {version}",
                where=self.name,
                hint=f"Nova imports opsets {OLDEST_OPSET} to {newest}: "
                "convert it with onnx.version_converter",
            )
        return versions

    def array(self, tensor: Any) -> np.ndarray:
        """The values of a TensorProto, mapped if they are in a file of their own."""
        title = f"tensor {tensor.name!r}" if tensor.name else "a tensor"
        shape = tuple(tensor.dims)
        if any(n < 0 for n in shape) or prod(n or 1 for n in shape) > _MOST_ELEMENTS:
            raise OnnxError(f"{title} has the shape {shape}", where=self.name)
        if tensor.data_type == STRING:
            if len(tensor.string_data) != prod(shape):
                raise OnnxError(
                    f"{title} has {len(tensor.string_data)} strings and the shape {shape}",
                    where=self.name,
                )
            return np.array(list(tensor.string_data), object).reshape(shape)
        if tensor.data_location == _EXTERNAL:
            return self._external(tensor, title, shape)
        try:
            array = np.asarray(onnx_package().numpy_helper.to_array(tensor))
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            raise OnnxError(f"{title} cannot be read: {error}", where=self.name) from None
        return array

    def _external(self, tensor: Any, title: str, shape: tuple[int, ...]) -> np.ndarray:
        fields = {entry.key: entry.value for entry in tensor.external_data}
        dtype = DTYPES.get(tensor.data_type)
        if dtype is None:
            raise OnnxError(
                f"{title} has external data of element type {tensor.data_type}", where=self.name
            )
        path = self._external_path(fields.get("location", ""), title)
        try:
            offset = int(fields.get("offset", 0))
            length = int(fields.get("length", prod(shape) * dtype.itemsize))
        except ValueError:
            raise OnnxError(
                f"{title} has an offset or length that is not a number", where=self.name
            ) from None
        size = path.stat().st_size
        if offset < 0 or length != prod(shape) * dtype.itemsize or offset + length > size:
            raise OnnxError(
                f"{title} has {length} bytes at {offset} of {path.name}, which has {size}; "
                f"{dtype}{list(shape)} needs {prod(shape) * dtype.itemsize}",
                where=self.name,
            )
        if not length:
            return np.empty(shape, dtype.numpy)
        flat = np.memmap(path, np.uint8, "r", offset, (length,))
        return np.asarray(flat).view(dtype.numpy).reshape(shape)

    def _external_path(self, location: str, title: str) -> Path:
        if self.folder is None:
            raise OnnxError(
                f"{title} has external data, and the model has no folder",
                where=self.name,
                hint="pass the path of the model file",
            )
        parts = location.replace("\\", "/").split("/")
        if not location or "\0" in location or os.path.isabs(location) or ".." in parts:
            raise OnnxError(
                f"{title} has its data at {location!r}",
                where=self.name,
                hint="external data lie in the folder of the model",
            )
        root = self.folder.resolve()
        path = (root / location).resolve()
        if not path.is_relative_to(root):
            raise OnnxError(f"{title} has its data outside of the model's folder", where=self.name)
        if not path.is_file():
            raise OnnxError(
                f"{title} has its data in {location!r}, which is missing", where=self.name
            )
        return path


def read_model(source: Any) -> OnnxModel:
    """The model at a path, in bytes, or in a ModelProto."""
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        return _checked(OnnxModel(source, source.graph.name or "<model>", None))
    if isinstance(source, bytes | bytearray | memoryview):
        return _checked(OnnxModel(_parse(bytes(source), "<bytes>"), "<bytes>", None))
    if not isinstance(source, str | os.PathLike):
        raise OnnxError(
            f"a {type(source).__name__} is not an ONNX model",
            hint="pass a path, bytes or an onnx.ModelProto",
        )
    name = os.fspath(source)
    if not name:
        raise OnnxError("the path of the model is empty", hint="pass the path of an .onnx file")
    if "\0" in name:
        raise OnnxError(f"a path has no NUL character: {name!r}")
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise unreadable(OnnxError, error, "cannot read the model", name) from None
    return _checked(OnnxModel(_parse(data, name), name, Path(name).parent))


def _parse(data: bytes, name: str) -> Any:
    onnx = onnx_package()
    try:
        return onnx.load_model_from_string(data)
    except Exception as error:  # protobuf has several error classes, by back end
        raise OnnxError(f"this is not an ONNX protobuf: {error}", where=name) from None


def _checked(model: OnnxModel) -> OnnxModel:
    if not model.proto.graph.node and not model.proto.graph.output:
        raise OnnxError("the model has no graph: the file is empty or cut off", where=model.name)
    if not model.proto.opset_import:
        raise OnnxError("the model does not name its opset", where=model.name)
    if any(isinstance(name, bytes) for name in _names(model.proto.graph)):
        raise OnnxError("a name in the model is not UTF-8", where=model.name)
    model.opsets()
    return model


def _names(graph: Any) -> Iterator[Any]:
    """The names in a graph and its subgraphs; protobuf gives bytes for one that is not UTF-8."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield info.name
        yield from (d.dim_param for d in info.type.tensor_type.shape.dim)
    for weight in graph.initializer:
        yield weight.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
            for inner in (attribute.g, *attribute.graphs):
                yield from _names(inner)
