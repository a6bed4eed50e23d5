"""Attributes of the IR are declared once, the generated table is true, old names are accepted."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nova
from nova.errors import LoweringError
from nova.ir import attributes
from nova.ir.attributes import ATTRIBUTES, INS, MIN_BLOCKS_PER_SM, SCRATCH_OFFSETS, WORK, Attribute
from nova.ir.context import make_context, parse_module
from nova.ir.dialect import OP_NAMES, full_name
from nova.ir.kernel import Kernel, Main
from nova.ir.walk import find_function, kernels, main_function
from nova.tools.attributes_page import find_users

PACKAGE = Path(nova.__file__).parent
DECLARING = {PACKAGE / "ir" / "attributes.py"}
DIALECT = {PACKAGE / "ir" / name for name in ("dialect.py", "custom_syntax.py")}


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """The string literals of a module that are not documentation."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node


def spellings(names: list[str], declaring: set[Path]) -> list[str]:
    pattern = re.compile(rf"(?<![\w./])(?:{'|'.join(map(re.escape, names))})(?![\w.])")
    return [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {match[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path not in declaring
        for node in strings(ast.parse(path.read_text()))
        for match in pattern.finditer(node.value)
        # Messages may name functions of the package, such as nova.device.
        if match[0] == node.value or not hasattr(nova, match[0].removeprefix("nova."))
    ]


def test_no_other_file_spells_an_attribute() -> None:
    names = [*ATTRIBUTES, *(old for a in ATTRIBUTES.values() for old in a.old)]
    assert spellings(names, DECLARING) == []


def test_no_other_file_spells_an_op_of_the_dialect() -> None:
    assert spellings([full_name(name) for name in OP_NAMES], DIALECT) == []


def test_no_file_builds_the_name_of_an_attribute() -> None:
    """f"nova.{name}" of attributes would hide a use from the table."""
    built = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.JoinedStr):
                text = ast.unparse(node)
                if "attributes[" in text and "nova." in text:
                    built.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert built == []


def test_every_attribute_is_set_and_read() -> None:
    users = find_users()
    names = [name for name in ATTRIBUTES if name.startswith("nova.")]
    assert len(names) > 40
    assert [name for name in names if not users[name].setters] == [], "nothing sets them"
    assert [name for name in names if not users[name].readers] == [], "nothing reads them"


def test_the_table_has_every_use_of_a_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles for a CPU and a device: each access is in the table that the syntax trees give."""
    hidden = {PACKAGE / "ir" / name for name in ("attributes.py", "kernel.py", "walk.py")}
    observed: set[tuple[str, str, str]] = set()

    def note(side: str, name: str) -> None:
        frame = sys._getframe(2)
        while Path(frame.f_code.co_filename) in hidden and frame.f_back is not None:
            frame = frame.f_back
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            observed.add((side, name, path.relative_to(PACKAGE).as_posix()))

    def watch(owner: Any, method: str, side: str) -> None:
        original = vars(owner)[method]

        def watched(self: Attribute[Any], op: Any, *args: Any) -> Any:
            note(side, self.name)
            return original(self, op, *args)

        monkeypatch.setattr(owner, method, watched)

    watch(Attribute, "has", "readers")
    watch(Attribute, "get", "readers")
    for owner in (Attribute, attributes.Flag):
        watch(owner, "set", "setters")
    rng = np.random.default_rng(0)
    x, w = (nova.tensor(rng.standard_normal(s).astype("f4")) for s in ((48, 40), (40, 64)))
    loss = nova.softmax(nova.gelu(x @ w)).sum()
    with nova.knobs.override(cache=False):
        for target, mode in (("cpu", "native"), ("cuda:sm_80", "sim")):
            nova.compile(
                loss, inputs=[x], params=[w], include_backward=True, target=target, run_mode=mode
            )
    assert len(observed) > 40
    users = find_users()
    missing = {
        (side, name, module)
        for side, name, module in observed
        # `remove` and `find` call `has`: a setter may ask first
        if module not in users[name].setters | users[name].readers
        or (side == "setters" and module not in users[name].setters)
    }
    assert missing == set()


OLD = """
func.func private @k(%x: memref<4xf32>, %y: memref<4xf32>)
    attributes {nova.kernel, nova.inputs = 1 : i64, nova.work = 4 : i64, nova.resident = 2 : i64,
                nova.scratch = array<i64: 0, 64>} {
  %s = memref.alloca() {nova.scratch} : memref<4xf32>
  return
}
func.func @main(%x: memref<4xf32>) attributes {nova.inputs = 1 : i64} { return }
"""


def test_names_of_earlier_versions_are_accepted() -> None:
    module = parse_module(OLD, "old.mlir", make_context())
    [kernel] = kernels(module)
    view = Kernel(kernel)
    assert (view.ins, view.work, view.min_blocks_per_sm) == (1, 4, 2)
    assert view.scratch_offsets == (0, 64)
    assert Main(main_function(module)).inputs == 1
    text = str(module)
    assert "nova.tile_local" in text
    assert re.search(r"nova\.(resident|scratch)\b", text) is None
    assert text.count("nova.inputs") == 1, "main keeps its own attribute"
    again = parse_module(text, "new.mlir", module.context)
    assert str(again) == text


def test_accessors() -> None:
    module = parse_module(OLD, "old.mlir", make_context())
    function = find_function(module, "k")
    assert WORK.find(function) == 4
    WORK.remove(function)
    assert WORK.find(function) is None
    assert not WORK.has(function)
    with pytest.raises(KeyError):
        WORK.get(function)
    SCRATCH_OFFSETS.copy(function, main_function(module))
    assert SCRATCH_OFFSETS.get(main_function(module)) == (0, 64)
    function.attributes[INS.name] = function.attributes[SCRATCH_OFFSETS.name]
    with pytest.raises(LoweringError, match=r"nova\.ins is .* not of the type i64"):
        INS.get(function)
    assert Kernel.min_blocks_per_sm is MIN_BLOCKS_PER_SM
