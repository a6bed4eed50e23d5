"""Device code for all sizes and for some of them, as one module.

Input: the images of a program with symbolic sizes, and those of static programs for some sizes,
each with a suffix for its symbols. Output: images with all kernels. A device loads one module, and
the tables of a size name the kernels that run. `driver.py` calls `join_images`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from nova.artifact.device_image import DeviceImage
from nova.compiler.gpu.emit_ptx import join_ptx

_COMMENT = re.compile(r"//[^\n]*")
# LLVM writes what a module defines from the first column on. Dynamic shared memory is declared
# there, too, as `.extern`: all kernels have the same one.
_DEFINED = re.compile(
    r"^(?:\.(?:visible|weak)\s+)?(?:"
    r"\.entry\s+(?P<kernel>[\w$]+)|"
    r"\.func\s+(?:\([^)]*\)\s*)?(?P<function>[\w$]+)|"
    r"\.(?:global|const|shared)\s[^;={\[]*?(?P<variable>[\w$]+)\s*[;=\[])",
    re.MULTILINE,
)


def join_images(
    images: Sequence[DeviceImage], parts: Sequence[tuple[str, Sequence[DeviceImage]]]
) -> tuple[DeviceImage, ...]:
    """The images with the code of `parts`, whose symbols get the suffixes that come with them."""
    joined, ptx = [], ""
    for image in images:
        if image.kind == "ptx":
            texts = [add_suffix(_ptx_of(static), suffix) for suffix, static in parts]
            ptx = join_ptx([image.data.decode(), *texts])
            data = ptx.encode()
        else:  # of the PTX before it
            from nova.artifact.cubins.ptxas import assemble  # only if cubins are requested

            data = assemble(ptx, image.arch).cubin
        joined.append(DeviceImage(image.kind, image.arch, data))
    return tuple(joined)


def _ptx_of(images: Sequence[DeviceImage]) -> str:
    return next(image.data.decode() for image in images if image.kind == "ptx")


def add_suffix(ptx: str, suffix: str) -> str:
    """The PTX with `suffix` appended to the names of its kernels, functions and variables."""
    text = _COMMENT.sub("", ptx)
    names = {name for match in _DEFINED.finditer(text) for name in match.groups() if name}
    if not names:
        return ptx
    listed = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"(?<![\w$%.])(?:{listed})(?![\w$])", lambda m: m[0] + suffix, ptx)
