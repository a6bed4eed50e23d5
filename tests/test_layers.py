"""The order of the folders: who may import whom, and what loads which library.

The tree is read, not run: every import statement counts, also those inside of functions. The last
tests run a saved program in a process that has no MLIR and no LLVM.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import nova

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nova"

# Modules that every folder may import. `errors` and `knobs` are public, so they stay on top.
TABLES = {"core", "errors", "knobs", "ops"}

# Folder or file -> what it may import besides itself and the tables, in pipeline order.
LAYERS: dict[str, set[str]] = {
    "graph": set(),
    # Libraries over the graph.
    "linalg": {"graph"},
    "fft": {"graph"},
    "plan": {"graph"},
    "ir": {"graph", "plan"},
    "codegen": {"graph", "plan", "ir"},
    # Imported programs call the factorizations and transforms of Nova's own libraries.
    "passes": {"graph", "plan", "ir", "codegen", "fft", "linalg"},
    # Reading, writing and running files needs nothing of the compiler.
    "artifact": set(),
    "compiler": {"graph", "plan", "ir", "codegen", "passes", "artifact"},
    # Programs of other compilers join the pipeline; files of other libraries are written as safely
    # as our own, and without the compiler: `nova.nn` and `nova.load` read weights.
    # Graphs of torch and onnx become graphs of Nova's ops and libraries.
    "frontends": {"graph", "ir", "passes", "compiler", "artifact", "fft", "linalg"},
    "gpusim": set(),
    # Traces and simulated schedules read the tables of a file.
    "tracing": {"artifact"},
    # Weights may be in a file of their own.
    "runtime": {"artifact", "gpusim", "tracing", "frontends.safetensors"},
    # Kernels are compiled and run to be timed.
    "tuning": {"ir", "codegen", "passes", "artifact", "compiler", "runtime"},
    "api": {
        *("graph", "plan", "ir", "artifact", "compiler", "frontends", "runtime", "tuning"),
    },
    "__init__": {"graph", "api"},
    "nn": {"graph", "frontends"},
    "optim": {"graph"},
    "data": {"graph"},
    # Parameters and state of a step may live on a device.
    "train": {
        *("graph", "artifact.files", "frontends", "runtime.device_arrays", "runtime.ring"),
        *("api", "nn", "optim", "data"),
    },
    # Models of other libraries are modules that compile their own generators.
    "pretrained": {"graph", "frontends", "api", "nn"},
    # A checked run that was submitted is a future as well.
    "debug": {"graph", "plan", "runtime.futures", "runtime.device_arrays", "api"},
    "tools": {
        *("graph", "plan", "ir", "passes", "artifact", "compiler", "frontends"),
        *("tracing", "runtime", "api"),
    },
}

# Back ends are independent of each other, and shared code is independent of both. Folder -> folders
# that it must not import, and the modules that are exceptions.
BACK_ENDS: dict[str, tuple[set[str], set[str]]] = {
    "codegen/common": ({"codegen.cpu", "codegen.gpu"}, set()),
    "codegen/cpu": ({"codegen.gpu"}, set()),
    "codegen/gpu": ({"codegen.cpu"}, set()),
    "compiler/llvm": ({"compiler.cpu", "compiler.gpu", "compiler.hybrid"}, set()),
    "compiler/cpu": ({"compiler.gpu", "compiler.hybrid"}, set()),
    # Kernels that are pinned to the host are compiled for its CPU.
    "compiler/gpu": ({"compiler.cpu"}, {"compiler.cpu.backend"}),
}

# Tables may import each other only downwards.
TABLE_IMPORTS: dict[str, set[str]] = {
    "errors": set(),
    "knobs": {"errors", "core.suggest"},
    "core.records": set(),
    # Errors name the user's line.
    "core.constants": {"errors", "core.location", "core.suggest"},
    "core.cpus": set(),
    "core.cpu_features": set(),
    "core.gc_pause": set(),
    "core.single_flight": set(),
    "core.location": set(),
    "core.suggest": {"errors"},
    "core.packages": {"errors"},
    "core.frozen_attributes": {"errors", "core.location"},
    "core.user_facing": {"errors", "core.location"},
    "core.log": {"knobs", "errors"},
    "core.dlpack": {"errors", "core.records"},
    "core.sizes": {"errors", "core.location", "core.records", "core.user_facing"},
    "core.dtypes": {"errors", "core.location", "core.records", "core.sizes", "core.suggest"},
    "core.settings": {"knobs", "core.records"},
    "core.signature": {"core.dtypes", "core.records", "core.sizes"},
    "core.pytree": {"core.records"},
    "core.targets": {
        *("errors", "knobs", "core.cpus", "core.cpu_features", "core.packages", "core.records"),
    },
    "ops": {"core.dtypes", "errors", "core.records", "core.sizes"},
}

# The extension module stands before all folders; only these reach for it.
# A target `cpu` has the features that the loader would accept.
NATIVE = (
    *("nova/artifact/", "nova/gpusim/", "nova/tracing/", "nova/runtime/"),
    *("nova/train/device_params.py", "nova/core/targets.py"),
)

# Library -> where it may be imported.
LIBRARIES = {
    "torch_mlir": ("nova/ir/bindings.py", "nova/ir/gpu_bindings.py"),
    "llvmlite": ("nova/compiler/llvm/bindings.py", "nova/core/targets.py"),
    "torch": ("nova/frontends/torch/", "nova/api/torch_backend/", "nova/api/from_torch.py"),
    "jax": ("nova/api/from_jax.py",),
    "onnx": ("nova/frontends/onnx/package.py", "nova/api/onnx_backend.py"),
    # No file that Nova reads may run code.
    "pickle": (),
    "shelve": (),
    "marshal": (),
}


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Line and dotted name of everything that a file imports, outside of `if TYPE_CHECKING`."""
    result = []
    for node in _running(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            result += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            result += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return result


def _running(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from _running(child)


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def table_of(path: Path) -> str:
    """The row of a table in TABLE_IMPORTS: the modules of `core` have one each."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:2]) if parts[0] == "core" else parts[0]


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_every_part_of_the_package_has_a_place() -> None:
    parts = {layer_of(path) for path in sources()}
    assert parts == set(LAYERS) | TABLES, "give the new part a row in LAYERS"


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_upwards(path: Path) -> None:
    layer = layer_of(path)
    if layer in TABLES:
        layer = table_of(path)
        allowed = TABLE_IMPORTS.get(layer, set())
    else:
        allowed = TABLES | LAYERS[layer]
    for line, name in imports(path):
        parts = name.split(".")
        if parts[0] != "nova" or name in ("nova.__version__", "nova._native"):
            continue
        names = {parts[1], ".".join(parts[1:3])}
        assert names & (allowed | {layer}), f"{path}:{line}: nova/{layer} imports {name}"


@pytest.mark.parametrize("folder", BACK_ENDS)
def test_back_ends_are_independent(folder: str) -> None:
    forbidden, exceptions = BACK_ENDS[folder]
    files = sorted((PACKAGE / folder).rglob("*.py"))
    assert files, f"nova/{folder} is empty"
    for path in files:
        for line, name in imports(path):
            parts = name.split(".")[1:]
            if ".".join(parts[:3]) not in exceptions:
                assert ".".join(parts[:2]) not in forbidden, f"{path}:{line}: imports {name}"


@pytest.mark.parametrize("library", LIBRARIES)
def test_library_is_imported_in_its_place_only(library: str) -> None:
    for path in sources():
        location = path.relative_to(ROOT).as_posix()
        for line, name in imports(path):
            if name.split(".")[0] == library:
                assert location.startswith(LIBRARIES[library] or "-"), f"{path}:{line}: {name}"


def test_the_extension_is_imported_in_its_places_only() -> None:
    users = {path for path in sources() for _, name in imports(path) if name == "nova._native"}
    positions = [path.relative_to(ROOT).as_posix() for path in users]
    assert positions, "nobody loads files"
    assert all(location.startswith(NATIVE) for location in positions), positions


def test_layers_are_in_order() -> None:
    observed: set[str] = set()
    for layer, above in LAYERS.items():
        named = {name.partition(".")[0] for name in above}
        assert named <= observed, f"{layer} names what comes after it"
        observed.add(layer)


BLOCKED = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch_mlir", "llvmlite", "torch", "jax"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
"""


def run_without_compilers(code: str, *args: str) -> str:
    completed = subprocess.run(
        [sys.executable, "-c", BLOCKED + code, *args], capture_output=True, text=True, cwd=ROOT
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_saved_program_runs_without_mlir_and_llvm(tmp_path: Path) -> None:
    X, W = nova.tensor(np.ones((2, 3)), name="X"), nova.tensor(np.ones((3, 4)), name="W")
    program = nova.compile(nova.tanh(X @ W), inputs=[X], params=[W])
    program.save(tmp_path / "model.nova")
    x, w = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4) / 50
    expected = program.run([x], [w])
    code = """
import numpy as np, nova
model = nova.load(sys.argv[1])
x, w = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4) / 50
print(model.run([x], [w]).tobytes().hex())
assert "nova.ir" not in sys.modules and "nova.passes" not in sys.modules
"""
    assert (
        run_without_compilers(code, str(tmp_path / "model.nova")).strip()
        == expected.tobytes().hex()
    )


def test_runtime_and_artifact_import_without_the_compiler() -> None:
    code = """
import nova.runtime.executor, nova.artifact.cache.disk, nova.frontends.safetensors
loaded = {name.split(".")[1] for name in sys.modules if name.startswith("nova.")}
assert not loaded & {"ir", "passes", "codegen", "tools"}, loaded
"""
    run_without_compilers(code)
