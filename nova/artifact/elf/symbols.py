"""Symbol resolution: finds the definition of every symbol reference.

In: parsed objects. Out: `Target`s. Used by `linker.py` and `relocate.py`. Locals belong to their
object; a global name has one strong definition in the whole program, or else its first weak one.
Objects with a suffix (variants of a program) see the names with the same suffix first, then those
without one.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova.artifact.elf import defs as elf
from nova.artifact.elf.imports import IMPORTS, MARKERS
from nova.artifact.elf.object_file import ObjectFile
from nova.errors import CodegenError

Target = tuple[int, int] | str
"""A symbol by object and index, or the name of an import or of a linker-defined symbol."""


class SymbolTable:
    """All names of a link. `runtime` is the index of the object that may have imports."""

    def __init__(self, files: Sequence[ObjectFile], suffixes: Sequence[str], runtime: int | None):
        self.files, self.suffixes, self.runtime = files, suffixes, runtime
        self.globals: dict[str, tuple[int, int]] = {}
        for number, file in enumerate(files):
            for name, index in file.defined.items():
                self._define(name + suffixes[number], number, index)
        self._undefined: set[str] = set()
        self.targets = [self._targets(number, file) for number, file in enumerate(files)]
        if self._undefined:
            raise CodegenError(
                f"undefined symbols: {', '.join(sorted(self._undefined))}",
                hint="a kernel may call no library: lower the operation to code that is inside "
                "the module (vector math, memory copies as loops)",
            )

    def exported(self, name: str) -> tuple[int, int]:
        """The symbol of an exported name."""
        if name not in self.globals:
            raise CodegenError(f"exported symbol '{name}' is defined in no object")
        return self._placed(*self.globals[name])

    def imports(self) -> list[str]:
        """The functions of the C library that the program uses."""
        names = {t for targets in self.targets for t in targets.values() if isinstance(t, str)}
        return sorted(names & IMPORTS)

    def _bind(self, number: int, index: int) -> int:
        return int(self.files[number].symbols["info"][index]) >> 4

    def _define(self, name: str, number: int, index: int) -> None:
        before = self.globals.get(name)
        weak = self._bind(number, index) == elf.STB_WEAK
        if before is None or (self._bind(*before) == elf.STB_WEAK and not weak):
            self.globals[name] = (number, index)
        elif not weak:
            raise CodegenError(
                f"symbol '{name}' is defined in {self.files[before[0]].label} and in "
                f"{self.files[number].label}"
            )

    def _targets(self, number: int, file: ObjectFile) -> dict[int, Target]:
        """The definitions of the symbols that the relocations of an object refer to."""
        targets: dict[int, Target] = {}
        for index in {*file.direct, *file.by_slot}:
            if index not in file.names:
                targets[index] = self._placed(number, index)
                continue
            name = file.names[index]
            definition = self.globals.get(name + self.suffixes[number]) or self.globals.get(name)
            if definition is not None:
                targets[index] = self._placed(*definition)
            elif number == self.runtime and (name in IMPORTS or name in MARKERS):
                targets[index] = name
            else:
                self._undefined.add(name or "(no name)")
        return targets

    def _placed(self, number: int, index: int) -> tuple[int, int]:
        file = self.files[number]
        if int(file.symbols["section"][index]) not in file.sections:
            raise CodegenError(
                f"symbol '{file.names.get(index, index)}' of {file.label} is absolute or in a "
                "section that is empty or not loaded"
            )
        return number, index
