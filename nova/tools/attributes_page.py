"""The page of attributes: the declarations of `nova/ir/attributes.py`, and the code that uses them.

The columns of setters and readers come from the syntax trees of the package. A module uses an
attribute through its declaration (`WORK.get(op)`) or through a property of a view
(`Kernel(op).work`, `kernel.work` where the module made `kernel` with `Kernel(...)`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from nova.ir import attributes
from nova.ir.attributes import ATTRIBUTES, Attribute
from nova.ir.kernel import Kernel, Main

_ROOT = Path(__file__).parents[1]
_SETTING = {"set", "copy", "remove"}
_VIEWS = {view.__name__: view for view in (Kernel, Main)}
# Functions that use a declaration for their caller, and the declaration with the sort of use.
_HELPERS = {
    "is_kernel": ("KERNEL", False),
    "kernels": ("KERNEL", False),
    "name_dictionaries": ("NAME", True),
    "noalias_dictionaries": ("NOALIAS", True),
}
# Properties and methods of views that are more than one attribute.
_DERIVED = {
    "updates": ("UPDATES",),
    "carried": ("CARRIED",),
    "in_place": ("IN_PLACE",),
    "output_arguments": ("INS", "OUTS"),
    "intermediate_arguments": ("INS", "OUTS"),
}
# The declarations themselves; and passes by the name of their file.
_OWN = {"ir/attributes.py", "ir/kernel.py", "ir/walk.py", "tools/attributes_page.py"}


@dataclass
class Users:
    """The modules that set and that read an attribute, as paths in the package."""

    setters: set[str] = field(default_factory=set)
    readers: set[str] = field(default_factory=set)


@cache
def find_users() -> dict[str, Users]:
    """The users of each attribute, by its name."""
    users = {name: Users() for name in ATTRIBUTES}
    constants = declared_constants()
    for path in sorted(_ROOT.rglob("*.py")):
        module = path.relative_to(_ROOT).as_posix()
        text = path.read_text()
        if module in _OWN or "nova.ir" not in text:
            continue
        for constant, setting in _uses(ast.parse(text)):
            if constant in constants:
                side = users[constants[constant].name]
                (side.setters if setting else side.readers).add(module)
    return users


def declared_constants() -> dict[str, Attribute[object]]:
    """The declarations, by the name of their constant."""
    return {n: v for n, v in vars(attributes).items() if isinstance(v, Attribute)}


def _uses(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """The constants of the declarations that a module uses, and whether the use is a setting."""
    imported = _imported(tree)
    views = {name for name in imported if name in _VIEWS}
    variables = _view_variables(tree, views)
    receivers = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and id(node) not in receivers:
            # a function of `nova/ir`, or a declaration that is passed to a function
            yield _HELPERS.get(imported.get(node.id, ""), (imported.get(node.id, ""), False))
        elif isinstance(node, ast.Call):
            yield from _call(node, imported, views)
        elif isinstance(node, ast.Attribute):
            view = _view_of(node.value, views, variables)
            if view:
                setting = isinstance(node.ctx, ast.Store)
                for constant in _constants_of(view, node.attr):
                    yield constant, setting
            elif (
                isinstance(node.value, ast.Name)
                and node.value.id in imported
                and node.attr not in _SETTING
            ):
                yield node.value.id, False


def _imported(tree: ast.Module) -> dict[str, str]:
    """The names that a module imports from `nova/ir`, by the names that it uses."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nova.ir")
        for alias in node.names
    }


def _call(node: ast.Call, imported: dict[str, str], views: set[str]) -> Iterator[tuple[str, bool]]:
    callee = node.func
    if not isinstance(callee, ast.Attribute) or not isinstance(callee.value, ast.Name):
        return
    if callee.value.id in imported and callee.attr in _SETTING:
        yield callee.value.id, True
    if callee.value.id in views and callee.attr == "mark":
        yield "KERNEL", True
        for keyword in node.keywords:
            if keyword.arg:
                yield keyword.arg.upper(), True


def _view_variables(tree: ast.Module, views: set[str]) -> dict[str, str]:
    """The variables and parameters that hold a view, with its class."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and (view := _view_of(node.value, views, {})):
            found |= {t.id: view for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.arg) and isinstance(node.annotation, ast.Name):
            if node.annotation.id in views:
                found[node.arg] = node.annotation.id
        elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.target, ast.Name):
            # for view in map(Kernel, ...)
            names = [n.id for n in ast.walk(node.iter) if isinstance(n, ast.Name)]
            if names[:1] == ["map"] and names[1] in views:
                found[node.target.id] = names[1]
    return found


def _view_of(node: ast.expr, views: set[str], variables: dict[str, str]) -> str | None:
    """The class of the view that an expression is, or None."""
    if isinstance(node, ast.Name):
        return variables.get(node.id)
    if isinstance(node, ast.Call):
        callee = node.func
        if isinstance(callee, ast.Attribute) and callee.attr == "mark":
            callee = callee.value
        if isinstance(callee, ast.Name) and callee.id in views:
            return callee.id
    return None


def _constants_of(view: str, name: str) -> tuple[str, ...]:
    if name in _DERIVED:
        return _DERIVED[name]
    declaration = vars(_VIEWS[view]).get(name)
    names = {id(value): constant for constant, value in declared_constants().items()}
    return (names[id(declaration)],) if isinstance(declaration, Attribute) else ()


# --- the page -------------------------------------------------------------------------------------


def render_attributes() -> str:
    """The table of attributes."""
    lines = [
        "# Attributes of the IR",
        "",
        "Passes and code generation communicate through attributes of functions and ops. Each is",
        "declared once, in `nova/ir/attributes.py`, and has one meaning; `Kernel` and `Main` in",
        "`nova/ir/kernel.py` are typed views of the functions that have them. A pass is listed by",
        "its name, other code by its folder. Texts of earlier versions may have the old names.",
        "",
        "| attribute | on | type | meaning | set by | read by |",
        "|---|---|---|---|---|---|",
    ]
    users = find_users()
    for name, declaration in sorted(ATTRIBUTES.items()):
        old = "".join(f" (was `{n}`)" for n in declaration.old)
        cells = (
            f"`{name}`{old}",
            declaration.on,
            f"`{declaration.mlir_type}`",
            declaration.meaning,
            _modules(users[name].setters),
            _modules(users[name].readers),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _modules(paths: set[str]) -> str:
    from nova.passes.registry import PASS_MODULES

    passes = {m.replace(".", "/") + ".py": name for name, m in PASS_MODULES.items()}
    names = {passes.get(f"nova/{path}") or f"{path.rpartition('/')[0]}/" for path in paths}
    return ", ".join(f"`{name}`" for name in sorted(names))
