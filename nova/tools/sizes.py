"""Sizes of arguments on a command line: `--shape 8x128`, `--shape x=8x128`, `--shape batch=8`."""

from __future__ import annotations

import argparse

from nova.core.records import record


@record
class Sizes:
    """An example argument of `nova.translate`; of an ONNX model, an input or axis by name."""

    shape: tuple[int, ...]
    dtype: None = None
    name: str = ""


def parse_sizes(text: str) -> Sizes:
    """The sizes in `text`, for argparse."""
    name, _, sizes = text.rpartition("=")
    return Sizes(tuple(int(size) for size in sizes.split("x") if size), name=name)


def add_shape_argument(parser: argparse.ArgumentParser) -> None:
    """The option `--shape`."""
    parser.add_argument(
        "--shape",
        action="append",
        metavar="SIZES",
        type=parse_sizes,
        help="sizes of an argument, such as 8x128; a program with ? sizes needs all of them; "
        "an ONNX model has names: x=8x128 is an input, batch=8 an axis",
    )


def named_shapes(shapes: list[Sizes] | None) -> dict[str, tuple[int, ...]]:
    """The sizes by name, for an ONNX model."""
    return {sizes.name: sizes.shape for sizes in shapes or []}
