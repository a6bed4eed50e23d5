"""Sound files with code planted in them that would run when `dlopen` loads them.

The code makes a file, so that a test can see whether anybody has run it.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

from surgery import Surgery

FLAGS, FLAGS_1, RELACOUNT = 0x1E, 0x6FFFFFFB, 0x6FFFFFF9
INIT, FINI, INIT_ARRAY, INIT_ARRAYSZ, FINI_ARRAY, FINI_ARRAYSZ = 12, 13, 25, 27, 26, 28
RELATIVE, IRELATIVE = (8, 37) if platform.machine() == "x86_64" else (1027, 1032)

# Makes the file PATH with a system call of its own: needs no library and no place to be loaded at.
X86_64 = """
  lea path(%rip), %rdi
  mov $0600, %esi
  mov $85, %eax
  syscall
  ret
path: .asciz "PATH"
"""
AARCH64 = """
  mov x0, #-100
  adr x1, path
  mov x2, #0101
  mov x3, #0600
  mov x8, #56
  svc #0
  ret
path: .asciz "PATH"
"""


def assemble(folder: Path, mark: Path) -> bytes:
    """The machine code that makes the file `mark`."""
    source = X86_64 if platform.machine() == "x86_64" else AARCH64
    (folder / "code.s").write_text(source.replace("PATH", str(mark)))
    subprocess.run(["gcc", "-c", "code.s", "-o", "code.o"], cwd=folder, check=True)
    copy = ["objcopy", "-O", "binary", "-j", ".text", "code.o", "code.bin"]
    subprocess.run(copy, cwd=folder, check=True)
    return (folder / "code.bin").read_bytes()


def plant_function(tag: int) -> Callable[[Surgery, int], None]:
    """DT_INIT or DT_FINI."""
    return lambda file, code: file.put("QQ", file.tag(FLAGS), tag, code)


def plant_array(tag: int, size_tag: int) -> Callable[[Surgery, int], None]:
    """An array of one pointer, which a relocation fills."""

    def plant(file: Surgery, code: int) -> None:
        first = file.sections[".rela.dyn"].offset
        assert file.get("Q", first + 8) == RELATIVE
        file.put("Q", first + 16, code)
        file.put("QQ", file.tag(FLAGS), tag, file.get("Q", first))
        file.put("QQ", file.tag(FLAGS_1), size_tag, 8)

    return plant


def plant_resolver(file: Surgery, code: int) -> None:
    """A relocation whose value a function computes."""
    first = file.sections[".rela.dyn"].offset
    file.put("Q", file.tag(RELACOUNT) + 8, 0)
    file.put("QQ", first + 8, IRELATIVE, code)


PLANTS = {
    "DT_INIT": ("dynamic-initializer", plant_function(INIT)),
    "DT_FINI": ("dynamic-initializer", plant_function(FINI)),
    "DT_INIT_ARRAY": ("dynamic-initializer", plant_array(INIT_ARRAY, INIT_ARRAYSZ)),
    "DT_FINI_ARRAY": ("dynamic-initializer", plant_array(FINI_ARRAY, FINI_ARRAYSZ)),
    "resolver": ("relocation-kind", plant_resolver),
}


def plant_code(name: str, sound: bytes, path: Path, mark: Path) -> str:
    """Write a file that would make the file `mark`; gives the check that has to refuse it."""
    check, plant = PLANTS[name]
    file = Surgery(sound)
    location = file.sections[".text"].offset
    code = assemble(path.parent, mark)
    file.put(f"{len(code)}s", location, code)
    plant(file, location)
    path.write_bytes(file.seal())
    return check
