"""Arrays for the arguments of a program, from a command line.

`nova run` and `nova trace` add the options with `add_array_arguments`, and give what the parser
made of them to `gather_arrays`: .npy files by name or in order, values of the file, random numbers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nova.core.sizes import SizeExpr
from nova.errors import ArgumentCountError, ArgumentNameError
from nova.runtime.model import Model
from nova.tools.describe import describe_signature
from nova.tools.npy import draw_array, read_npy

_USUAL_SIZE = 16
"""Of a dim, where no array tells it."""


def add_array_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say where arrays come from."""
    add = parser.add_argument
    add(
        "--input",
        nargs="+",
        action="extend",
        default=[],
        metavar="[NAME=]X.npy",
        help="arrays for inputs and params, by name or in the order of the signature",
    )
    add("--weights", metavar="FILE", help="a safetensors file with values of the params")
    add("--random", action="store_true", help="draw the arguments that have no value otherwise")
    add("--seed", type=parse_count, default=0, metavar="N", help="of --random (default 0)")


def parse_count(text: str) -> int:
    """A whole number from 0 on, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def gather_arrays(program: Model, args: argparse.Namespace) -> list[np.ndarray]:
    """An array for each argument: by name, then in order, then of the file, then at random."""
    signature, carried = describe_signature(program.artifact), program.params
    tensors = {tensor["name"]: tensor for tensor in signature if tensor["role"] != "output"}
    arrays: dict[str, np.ndarray] = {}
    unnamed: list[str] = []
    for word in args.input:
        name, equals, path = word.partition("=")
        if not equals or (name not in tensors and Path(word).exists()):
            unnamed.append(word)
        elif name not in tensors:
            raise ArgumentNameError(
                f"the program has no argument {name!r}",
                where=args.file,
                hint=f"it takes {', '.join(tensors) or 'none'}",
            )
        elif name in arrays:
            raise ArgumentNameError(f"two arrays are given for {name!r}", where=args.file)
        else:
            arrays[name] = read_npy(Path(path), tensors[name])
    free = [name for name in tensors if name not in arrays]
    missing = [name for name in free[len(unnamed) :] if name not in carried]
    if len(unnamed) > len(free) or (missing and not args.random):
        required = [name for name in tensors if name not in carried] or tensors
        raise ArgumentCountError(
            f"{len(unnamed) + len(arrays)} arrays given, {len(required)} wanted: "
            f"{', '.join(required) or 'none'}",
            where=args.file,
            hint="give --input [NAME=]X.npy for each, or --random for the rest",
        )
    for name, path in zip(free, unnamed, strict=False):
        arrays[name] = read_npy(Path(path), tensors[name])
    random = np.random.default_rng(args.seed)
    known = [(name, arrays[name].shape) for name in arrays]
    sizes = _choose_sizes(program, [*known, *((n, a.shape) for n, a in carried.items())])
    for name in missing:
        shape = [n if isinstance(n, int) else sizes[n] for n in tensors[name]["shape"]]
        arrays[name] = draw_array({**tensors[name], "shape": shape}, random)
    return [arrays[name] if name in arrays else carried[name] for name in tensors]


def _choose_sizes(program: Model, known: Sequence[tuple[str, Sequence[int]]]) -> dict[str, int]:
    """A number for each symbolic size of the arguments, by its text.

    Dims have the sizes of the arrays that are there, else a small size within their bounds.
    """
    signature = program.signature
    declared = {argument.name: argument.shape for argument in signature.arguments}
    values = {dim.name: min(max(_USUAL_SIZE, dim.min), dim.max) for dim in signature.dims}
    for name, shape in known:
        for size, actual in zip(declared[name], shape, strict=False):
            if isinstance(size, SizeExpr) and size.symbol is not None:
                values[size.symbol.name] = actual
    every = [n for shape in declared.values() for n in shape if isinstance(n, SizeExpr)]
    return {str(size): size.evaluate(values) for size in every}
