"""What type checkers know of Nova: the stubs are whole, and mypy finds mistakes by them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nova
from nova.graph import FUNCTIONS
from nova.ops import OPS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def defined(path: str, owner: str | None = None) -> set[str]:
    """The names that a stub defines, imports or declares, at its top or in a class."""
    tree: ast.Module | ast.ClassDef = ast.parse((ROOT / path).read_text())
    if owner is not None:
        [tree] = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner]
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.asname}
    return names


def test_the_package_stub_has_every_public_name() -> None:
    names = defined("nova/__init__.pyi")
    assert set(nova.__all__) <= names
    assert set(FUNCTIONS) <= names
    assert all(hasattr(nova, name) for name in names)


def test_the_methods_stub_has_every_method() -> None:
    names = defined("nova/graph/op_methods.pyi", "TensorMethods")
    assert {method for op in OPS.values() for method in op.methods} <= names
    assert all(name in vars(nova.Tensor) for name in names)
    operators = {n for n, value in vars(nova.Tensor).items() if "functions" in _home(value)}
    assert operators <= names


def _home(value: object) -> str:
    return getattr(value, "__module__", None) or ""


def test_the_marker_is_in_the_package() -> None:
    assert (ROOT / "nova/py.typed").is_file()


@pytest.mark.slow
def test_mypy_of_user_code(tmp_path: Path) -> None:
    """Strict: the right program has no error, and the wrong one exactly those that it names."""
    completed = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--config-file=", "--strict"),
            *("--follow-imports=silent", f"--cache-dir={tmp_path}"),
            *("user_program.py", "wrong_program.py"),
        ],
        cwd=HERE,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    result = re.findall(r"^(\w+)\.py:(\d+): error: .*\[([\w-]+)\]$", completed.stdout, re.M)
    lines = (HERE / "wrong_program.py").read_text().splitlines()
    expected = [
        ("wrong_program", str(number), line.partition("# expect: ")[2])
        for number, line in enumerate(lines, 1)
        if "# expect: " in line
    ]
    assert sorted(result) == sorted(expected), completed.stdout + completed.stderr


def test_the_user_program_runs(tmp_path: Path) -> None:
    """The types are those of the values: what mypy lets through works."""
    completed = subprocess.run(
        [sys.executable, str(HERE / "user_program.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
