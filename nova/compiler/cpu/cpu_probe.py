"""The features that each LLVM processor name implies, measured with LLVM itself.

The tests of `nova/core/cpus.py` call `probe`. `python -m nova.compiler.cpu.cpu_probe` regenerates
that table after a change of the LLVM version or of the features that Nova knows
(`nova/core/cpu_features.py`). LLVM does not list the features of a processor, but it inlines a
callee only if the caller has all features of the callee. So a function for each feature is called
from a function for each processor, and the calls that remain show the missing features.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from nova.compiler.llvm.bindings import binding as llvm
from nova.compiler.llvm.machine_code import initialise
from nova.core.cpu_features import BASES, FLAGS, UNPROBED
from nova.core.records import record

_NAME = re.compile(r"^  (\S+) +- ", re.MULTILINE)
_CALLER = re.compile(r'^define [^@]*@"?caller\.(\d+)"?\(.*?^}', re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"call void @feature\.(\d+)\(")
_ASK = (
    "import sys; from llvmlite import binding as llvm; llvm.initialize_all_targets(); "
    "llvm.initialize_all_asmprinters(); "
    "llvm.Target.from_triple(sys.argv[1]).create_target_machine(cpu='help')"
)
_USABLE = (
    "import sys; from nova.compiler.cpu.cpu_probe import print_usable; "
    "print_usable(sys.argv[1], sys.argv[2:])"
)
# Architecture levels (x86_64-v3) are names of Nova, and generic is not a processor.
_NOT_PROCESSORS = ("generic", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
# LLVM generates no code for the architecture without them.
_FIXED = ("16bit-mode", "32bit-mode", "64bit", "64bit-mode", "x32", "soft-float")
_LINE = 88


@record
class Caller:
    """A code generation target: an LLVM processor and a feature string."""

    cpu: str
    features: str = ""


def triple(arch: str) -> str:
    """The Linux target triple of an architecture."""
    return f"{arch}-unknown-linux-gnu"


@cache
def known_names(arch: str) -> tuple[list[str], list[str]]:
    """The processor and feature names in LLVM's help text."""
    process = subprocess.run(
        [sys.executable, "-c", _ASK, triple(arch)], capture_output=True, text=True, check=True
    )
    processors, features = process.stderr.split("Available features for this target:")
    return _NAME.findall(processors), _NAME.findall(features)


def usable(arch: str, names: Iterable[str]) -> list[str]:
    """The processors with 64-bit code in LLVM: it ends the process on the others.

    It is asked in forks of a new process. Where other libraries are loaded, their exit handlers
    would wait in the fork for threads that it does not have.
    """
    process = subprocess.run(
        [sys.executable, "-c", _USABLE, arch, *names], capture_output=True, text=True, check=True
    )
    return process.stdout.split()


def print_usable(arch: str, names: Iterable[str]) -> None:
    """The process of `usable`."""
    initialise()
    print(*(name for name in names if _emits(arch, name)))


def _emits(arch: str, name: str) -> bool:
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    machine = llvm.Target.from_triple(triple(arch)).create_target_machine(cpu=name)
    module = llvm.parse_assembly("define void @f() { ret void }")
    module.triple = triple(arch)
    machine.emit_object(module)
    os._exit(0)


def probe(arch: str, callers: Sequence[Caller], features: Sequence[str]) -> list[set[str]]:
    """The subset of `features` that each caller has; features that inlining ignores are in all."""
    initialise()
    base = BASES[arch]
    off = "".join(f"-{name}," for name in known_names(arch)[1] if name not in _FIXED)
    parts = [
        f'define void @feature.{i}(ptr %p) "target-cpu"="{base}" "tune-cpu"="generic" '
        f'"target-features"="{off}+{name}" {{\n store volatile i32 {i}, ptr %p\n ret void\n}}'
        for i, name in enumerate(features)
    ]
    calls = "".join(f" call void @feature.{i}(ptr %p)\n" for i in range(len(features)))
    parts += [
        f'define void @caller.{i}(ptr %p) "target-cpu"="{caller.cpu}" "tune-cpu"="generic" '
        f'"target-features"="{caller.features}" {{\n{calls} ret void\n}}'
        for i, caller in enumerate(callers)
    ]
    module = llvm.parse_assembly("\n".join(parts))
    module.triple = triple(arch)
    machine = llvm.Target.from_triple(triple(arch)).create_target_machine(cpu=base)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    pending = {
        int(m[1]): {int(i) for i in _CALL.findall(m[0])} for m in _CALLER.finditer(str(module))
    }
    return [
        {name for i, name in enumerate(features) if i not in pending[number]}
        for number in range(len(callers))
    ]


def processors(arch: str) -> dict[str, tuple[str, ...]]:
    """Every LLVM processor with 64-bit code, and its features among those that Nova knows."""
    table = FLAGS[arch]
    names = [n for n in known_names(arch)[0] if n not in _NOT_PROCESSORS]
    names = usable(arch, names)
    probed = [feature for feature in table if feature not in UNPROBED]
    answers = probe(arch, [Caller(name) for name in names], probed)
    return {
        name: tuple(f for f in table if f in answer or _follows(f, answer))
        for name, answer in zip(names, answers, strict=True)
    }


def _follows(feature: str, answer: set[str]) -> bool:
    """Whether a feature that inlining ignores is implied by a later feature."""
    return feature in UNPROBED and UNPROBED[feature] in answer


def _rows(table: Mapping[str, tuple[str, ...]]) -> str:
    """The table as text: a name, and its features in addition to those of an earlier name."""
    lines: list[str] = []
    before: dict[str, tuple[str, ...]] = {}
    for name, features in sorted(table.items(), key=lambda row: (len(row[1]), row[1], row[0])):
        parents = [
            p for p, features_before in before.items() if set(features_before) <= set(features)
        ]
        parent = max(parents, key=lambda p: len(before[p]), default="")
        more = [f for f in features if f not in before.get(parent, ())]
        before[name] = features
        words = [*([parent] if parent else []), *(f"+{f}" for f in more)]
        lines += _wrapped(name, words)
    return "\n".join(lines)


def _wrapped(name: str, words: list[str]) -> list[str]:
    text, pieces = "", []
    for word in words:
        if len(text) + len(word) > _LINE:
            pieces.append(text)
            text = ""
        text += f"{word} "
    pieces.append(text.rstrip())
    if len(pieces) == 1:
        return [f'    "{name}": "{pieces[0]}",']
    return [f'    "{name}": (', *(f'        "{piece}"' for piece in pieces), "    ),"]


_HEAD = '''"""LLVM's processors: their names, and those of their features that Nova knows.

Written by `python -m nova.compiler.cpu.cpu_probe`, which asks LLVM; `tests/core/test_cpus.py`
checks it against LLVM. A row has the name of another row, whose features it has too, and more.
`nova/core/targets.py` reads it, so that a target is known without LLVM.
"""

from __future__ import annotations

from functools import cache

'''
_TAIL = '''
PROCESSORS = {"x86_64": _X86_64, "aarch64": _AARCH64}


@cache
def processor_features(arch: str, name: str) -> frozenset[str]:
    """The features of a processor that is in the table."""
    own, parents = set(), []
    for word in PROCESSORS[arch][name].split():
        if word.startswith("+"):
            own.add(word[1:])
        else:
            parents.append(word)
    return frozenset(own).union(*(processor_features(arch, parent) for parent in parents))
'''


def main() -> None:
    """Regenerate `nova/core/cpus.py`."""
    text = _HEAD
    for variable, arch in (("_X86_64", "x86_64"), ("_AARCH64", "aarch64")):
        text += f"{variable}: dict[str, str] = {{\n{_rows(processors(arch))}\n}}\n\n"
    Path(__file__).parents[2].joinpath("core", "cpus.py").write_text(
        text.rstrip("\n") + "\n" + _TAIL
    )


if __name__ == "__main__":
    main()
