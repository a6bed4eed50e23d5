"""The disk cache as a user meets it: across processes, damaged, unwritable, explained."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import nova
from nova import _native
from nova.api.compile import cache_statistics, clear_memory_cache
from nova.artifact.cache import disk
from nova.errors import CacheWarning

ROOT = Path(nova.__file__).parent.parent
A = np.arange(6, dtype="f4").reshape(2, 3)

CHILD = """
import json, sys
import numpy as np
import nova
x = nova.tensor(np.zeros((2, 3), "f4"), name="x")
program = nova.compile(nova.tanh(x) + 1, inputs=[x])
value = program(np.ones((2, 3), "f4"))
heavy = [m for m in ("torch_mlir", "llvmlite", "torch", "jax") if m in sys.modules]
print(json.dumps({"origin": program.origin, "value": float(value[0, 0]), "heavy": heavy,
                  "stages": list(program.stages), "metrics": list(program.metrics),
                  "mlir": program.mlir_source}))
"""


# An editable install finds nova by a hook of its own, before any folder on the path.
PLAIN_IMPORTS = """import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__name__.startswith("ScikitBuild")]
"""


def child(root, folder, code=CHILD, **environment):
    """Run code in another process; gives what it printed on stdout and stderr."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NOVA_")}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", PLAIN_IMPORTS + code],
        env={**inherited, "PYTHONPATH": str(root), "NOVA_CACHE_DIR": str(folder), **environment},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, result.stderr


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of Nova that nobody edits while the processes of a test use it."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT / "nova", folder / "nova", ignore=shutil.ignore_patterns("__pycache__"))
    # An editable install keeps what was built elsewhere.
    built = Path(_native.__file__)
    shutil.copy(built, folder / "nova")
    shutil.copytree(built.parent / "embedded", folder / "nova/embedded", dirs_exist_ok=True)
    return folder


@pytest.fixture
def folder(tmp_path):
    """An empty disk cache, and nothing in memory."""
    clear_memory_cache()
    path = tmp_path / "cache"
    with nova.knobs.override(cache_dir=path):
        yield path
    clear_memory_cache()


def build(number=1.5, **options):
    x = nova.tensor(A, name="x")
    return nova.compile(nova.tanh(x) + number, inputs=[x], **options)


def test_across_processes(package, tmp_path):
    folder = tmp_path / "cache"
    first, log = child(package, folder, NOVA_LOG="compile,cache,run")
    first = json.loads(first)
    assert first["origin"] == "compiled" and set(first["heavy"]) == {"torch_mlir", "llvmlite"}
    assert len(list(folder.glob("*.nova"))) == 1
    lines = log.splitlines()
    assert any(line.startswith("[cache] miss ") and "the cache is empty" in line for line in lines)
    assert any(line.startswith("[compile] ") and "2 steps for cpu" in line for line in lines)
    assert any(line.startswith("[compile] linalg: ") and line.endswith(" bytes") for line in lines)
    assert any(line.startswith("[run] ") and "1 kernel, " in line for line in lines)
    second, log = child(package, folder, NOVA_LOG="all")
    second = json.loads(second)
    assert second["origin"] == "disk" and second["heavy"] == [], "no compiler was loaded"
    assert second["value"] == first["value"] == pytest.approx(np.tanh(1) + 1)
    assert second["stages"] == first["stages"] and second["mlir"] == first["mlir"]
    assert second["metrics"] == [] and "artifact" in first["metrics"]
    assert "[cache] hit " in log and "on disk" in log and "[compile]" not in log
    off, log = child(package, folder, NOVA_CACHE="0")
    assert json.loads(off)["origin"] == "compiled" and log == ""
    assert len(list(folder.glob("*.nova"))) == 1


def test_memory_then_disk(folder):
    before = cache_statistics()
    assert [build().origin, build().origin] == ["compiled", "memory"]
    clear_memory_cache()
    again = build()
    assert again.origin == "disk" and again.stages["plan"].startswith("plan {")
    after = cache_statistics()
    assert {k: after[k] - before[k] for k in after} == {"compiled": 1, "memory": 1, "disk": 1}
    np.testing.assert_allclose(again(A), np.tanh(A) + 1.5, rtol=1e-6)


def test_locations_and_data_do_not_matter_but_literals_do(folder):
    build()
    x = nova.tensor(A + 1, name="x")
    y = nova.tanh(x)
    assert nova.compile(y + 1.5, inputs=[x]).origin == "memory"
    assert build(1.25).origin == "compiled"


def test_a_miss_is_explained(folder, capsys):
    """By the nearest entry on disk, which another process may have written."""
    build()
    build(7.0, target="x86_64")
    clear_memory_cache()

    def explain(*args, **options):
        capsys.readouterr()
        with nova.knobs.override(log="cache"):
            build(*args, **options)
        return capsys.readouterr().err.splitlines()

    assert explain()[0].endswith("on disk") and explain()[0].endswith("in memory")
    miss, *why = explain(2.5)
    assert miss.startswith("[cache] miss ") and "the nearest entry is" in miss
    assert why == ["[cache] plan differs: line 4: 'slot[1] = add(slot[0], f32[]<1.5>) : f32[2,3]' "
                   "became 'slot[1] = add(slot[0], f32[]<2.5>) : f32[2,3]'"]  # fmt: skip
    miss, *why = explain(2.5, fast_math=True)
    assert why == ["[cache] options differs: 'fast_math=False' became 'fast_math=True'"]
    miss, *why = explain(2.5, fast_math=True, target="x86_64")
    assert "the nearest entry is" in miss and len(why) == 2
    assert why[0] == "[cache] options differs: 'target=cpu' became 'target=x86_64'"
    assert why[1].startswith("[cache] target differs: 'cpu-")
    assert [line for line in explain(7.0) if "target differs: 'x86_64-" in line], "not the last one"


def test_a_miss_without_disk_is_explained_by_the_last_compile(folder, capsys):
    with nova.knobs.override(cache=False, log="cache"):
        build(81.5)
        build(82.5)
    assert "<81.5>) : f32[2,3]' became" in capsys.readouterr().err
    assert not folder.exists()


def test_damaged_entries_are_built_again(folder):
    build()
    [entry] = folder.glob("*.nova")
    full = entry.read_bytes()
    for damage in (full[:100], b"", full[:-50] + bytes(50)):
        clear_memory_cache()
        entry.write_bytes(damage)
        with pytest.warns(CacheWarning, match="removed the damaged cache entry") as caught:
            program = build()
        assert len(caught) == 1 and program.origin == "compiled"
        np.testing.assert_allclose(program(A), np.tanh(A) + 1.5, rtol=1e-6)
        assert list(folder.glob("*.nova")) == [entry]
    clear_memory_cache()
    assert build().origin == "disk"


def test_ctrl_c_while_another_process_compiles(folder, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(disk, "try_lock", interrupt)
    with pytest.raises(nova.errors.CompileInterrupted, match="nothing was cached"):
        build(91.5)
    monkeypatch.undo()
    assert build(91.5).origin == "compiled"


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """One warning, and every compile works; a file in the place of the folder stops any user."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "cache"
    monkeypatch.setattr(disk, "_warned_folders", set())
    with nova.knobs.override(cache_dir=path), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in (41.0, 42.0, 43.0):
            assert build(number).origin == "compiled"
    assert [w.category for w in caught] == [CacheWarning]
    assert str(path) in str(caught[0].message) and "NOVA_CACHE_DIR" in str(caught[0].message)


def test_the_cache_can_be_off(folder):
    with nova.knobs.override(cache=False):
        assert build(51.0).origin == "compiled"
        assert build(51.0).origin == "memory"
    assert not folder.exists()


def test_a_changed_source_is_another_compiler(package, tmp_path):
    """The passes are there to be changed; a cached program of the old ones must not be used."""
    code = "from nova.api.compile import compiler_version; print(compiler_version())"
    first = child(package, tmp_path, code)[0]
    assert child(package, tmp_path, code)[0] == first
    assert "torch_mlir=" in first and "llvmlite=" in first
    changed = package / "nova" / "passes" / "math" / "expand_math.py"
    changed.write_text(changed.read_text() + "\n# changed\n")
    assert child(package, tmp_path, code)[0] != first


def test_save_and_load(package, tmp_path):
    path = tmp_path / "model.nova"
    program = build(61.5)
    program.save(path)
    loaded = nova.load(path)
    np.testing.assert_array_equal(loaded(A), program(A))
    assert str(loaded.plan) == str(program.plan) and loaded.stages == program.stages
    code = f"""
import sys, numpy as np, nova
print(nova.load({str(path)!r}).run([np.zeros((2, 3), "f4")])[0, 0], "torch_mlir" in sys.modules)
"""
    assert child(package, tmp_path, code)[0].split() == ["61.5", "False"]
