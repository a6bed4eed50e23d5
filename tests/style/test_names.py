"""Names say what a thing is: pronoun-like parameters are refused, and such names are rare."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from pronouns import is_pronoun
from sources import files_under, names_of, parse_python

# Part of the public API or of Python's protocols: file, function, parameter, and why.
EXCEPTIONS: dict[tuple[str, str, str], str] = {
    ("nova/linalg/triangular.py", "solve_triangular", "left"): "torch's keyword",
    ("nova/linalg/lu_factors.py", "lu_solve", "left"): "torch's keyword",
    ("nova/__init__.pyi", "interp", "left"): "numpy's keyword",
    ("nova/_native.pyi", "simulate", "kinds"): "the C extension's keyword",
    ("nova/_native.pyi", "on_device", "kind"): "the C extension's keyword",
    ("nova/graph/spelling.py", "view_as", "other"): "torch's keyword",
    ("nova/graph/spelling.py", "reshape_as", "other"): "torch's keyword",
    ("nova/graph/spelling.py", "expand_as", "other"): "torch's keyword",
    ("nova/graph/spelling.py", "type_as", "other"): "torch's keyword",
}


def public_parameters(path: str) -> list[tuple[str, str, int]]:
    """Function, parameter and line of the public functions of a file."""
    parameters: list[tuple[str, str, int]] = []

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                if not child.name.startswith("_"):
                    visit(child)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                if not child.name.startswith("_"):
                    args = child.args
                    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
                        parameters.append((child.name, arg.arg, arg.lineno))
            elif isinstance(child, ast.If | ast.Try):
                visit(child)

    visit(parse_python(path))
    return parameters


def test_parameters_of_public_functions() -> None:
    refused = [
        f"{path}:{line}: {function}({parameter})"
        for path in files_under(("nova/",), (".py", ".pyi"))
        for function, parameter, line in public_parameters(path)
        if is_pronoun(parameter) and (path, function, parameter) not in EXCEPTIONS
    ]
    assert not refused, "pronoun-like parameters; name the thing:\n" + "\n".join(refused)


def test_every_exception_is_needed() -> None:
    for path, function, parameter in EXCEPTIONS:
        named = {(f, p) for f, p, _ in public_parameters(path)}
        assert (function, parameter) in named, (path, function, parameter)


@pytest.mark.parametrize("folder", ["nova", "tests"])
def test_share_of_pronouns(folder: str) -> None:
    names = Counter(
        name.text for path in files_under((f"{folder}/",), (".py",)) for name in names_of(path)
    )
    pronouns = Counter({name: count for name, count in names.items() if is_pronoun(name)})
    share = pronouns.total() / names.total()
    assert share < 0.01, (
        f"{share:.2%} of the names in {folder} are pronoun-like: {pronouns.most_common(20)}"
    )


def test_pronouns() -> None:
    assert is_pronoun("_found") and is_pronoun("KINDS") and is_pronoun("Place")
    assert not is_pronoun("dtype_kind") and not is_pronoun("inner")
