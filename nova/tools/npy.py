"""Arrays for `nova run`: read from .npy files, drawn at random, written to .npy files.

In: paths, and tensors of a signature as `describe_signature` gives them. Out: numpy arrays. No file
is ever unpickled. numpy's format has no name for bf16 and 8-bit floats: such arrays are read and
written as raw bytes.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from nova.artifact.files import write_atomically
from nova.core.dtypes import FLOATS_8, array_dtype, bf16
from nova.errors import ArrayFileError

_UNNAMED = (bf16, *FLOATS_8)


def read_npy(path: Path, tensor: dict[str, Any]) -> np.ndarray:
    """The array in a .npy file, meant for `tensor`; its type and shape are checked by the run."""
    try:
        with open(path, "rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise ArrayFileError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, EOFError, MemoryError, OverflowError) as error:
        raise ArrayFileError(
            f"no array in the .npy format: {error}",
            where=str(path),
            hint="write it with numpy.save; arrays of Python objects are not read",
        ) from None
    element = array_dtype(tensor["dtype"])
    is_raw = element in _UNNAMED and array.dtype == np.dtype(f"V{element.itemsize}")
    return array.view(element.numpy) if is_raw else array


def draw_array(tensor: dict[str, Any], random: np.random.Generator) -> np.ndarray:
    """Random values: floats are normal, integers from 0 to 9, truth values even."""
    element_type, shape = array_dtype(tensor["dtype"]), tuple(tensor["shape"])
    if element_type.is_float:
        return random.standard_normal(shape, np.float32).astype(element_type.numpy)
    return random.integers(0, 10 if element_type.is_integer else 2, shape).astype(
        element_type.numpy
    )


def write_npy(path: Path, array: np.ndarray) -> None:
    """Write one array; the file appears whole or not at all."""
    buffer = io.BytesIO()
    # Explicit, as numpy writes these classes only with a warning.
    is_unnamed = any(array.dtype == element.numpy for element in _UNNAMED)
    raw = array.view(f"V{array.itemsize}") if is_unnamed else array
    np.lib.format.write_array(buffer, raw, allow_pickle=False)
    write_atomically(path, buffer.getbuffer())


def file_names(names: list[str]) -> list[str]:
    """A file name for each tensor; a name in a file may be hostile, so it stays in the folder."""
    files: list[str] = []
    for number, name in enumerate(names):
        plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).lstrip(".")[:100] or str(number)
        chosen = plain
        while f"{chosen}.npy" in files:
            chosen += f"-{number}"
        files.append(f"{chosen}.npy")
    return files


def summarize_array(array: np.ndarray) -> dict[str, Any]:
    """Smallest, largest and mean of the finite values, and the number of the others."""
    values = array.astype(np.float64)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return {"min": None, "max": None, "mean": None, "nonfinite": int(values.size)}
    return {
        "min": float(finite.min()),
        "max": float(finite.max()),
        "mean": float(finite.mean()),
        "nonfinite": int(values.size - finite.size),
    }
