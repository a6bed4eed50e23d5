"""Types of the extension module; its sources are in `native/src/python`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import Buffer

ARGUMENT: int
OUTPUT: int
WORKSPACE: int
CONSTANT: int
EXECUTE: int
WRITE: int
READ: int

class Image:
    def __new__(cls, data: Buffer, segments: Sequence[tuple[int, int, int, int, int]]) -> Image: ...
    @property
    def base(self) -> int: ...
    def address(self, vaddr: int, /) -> int: ...

class Program:
    def __new__(
        cls,
        image: Image,
        args: Sequence[tuple[tuple[int, ...], np.dtype[Any], bool]],
        outputs: Sequence[tuple[tuple[int, ...], np.dtype[Any], int]],
        buffers: Sequence[tuple[int, int]],
        launches: Sequence[tuple[int, int, tuple[int, ...]]],
        workspace_size: int,
        convert: Callable[[int, Any, bool], Any],
        release_gil: bool,
    ) -> Program: ...
    @property
    def image(self) -> Image: ...
    @property
    def workspace_size(self) -> int: ...
    def __call__(self, *arrays: Any, out: Any = None) -> Any: ...
    def run(self, inputs: Sequence[Any], params: Sequence[Any] = (), out: Any = None) -> Any: ...
