"""A first use on a strange machine: no home folder, no compiler, a misspelt name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.core.packages import COMPILER, compiler_missing, install_command
from nova.errors import MissingPackageError, UnknownNameError
from nova.tools import nova as nova_tool
from nova.tools import nova_opt, nova_translate

ROOT = Path(__file__).parents[2]
HELLO = """
import numpy as np, nova
X = nova.tensor(np.full((2, 2), 0.5, "f4"), name="X")
print(nova.compile(nova.tanh(X) @ X, inputs=[X]).run([X.data])[0, 0])
"""
WANTED = f"{np.tanh(np.float32(0.5)):.5f}"
BLOCKED = """
import sys
for name in {names!r}:
    sys.modules[name] = None
"""


def run(code: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """The code in a process of its own, without a setting of the cache."""
    variables = {**os.environ, "NOVA_CACHE_DIR": "", **environment}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
    )


# --- no place for the cache -----------------------------------------------------------------------

# A user id without a row in the system's table, which the standard library asks when HOME is unset.
NO_USER = """
import pwd
def absent(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = absent
"""


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_a_user_without_a_home_folder_compiles(home: str | None) -> None:
    completed = run(NO_USER + HELLO, HOME=home, XDG_CACHE_HOME=None)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith(WANTED[:6])
    assert completed.stderr.count("CacheWarning: this user has no home folder") == 1
    assert "Set NOVA_CACHE_DIR" in completed.stderr


def test_the_cache_command_without_a_home_folder() -> None:
    code = NO_USER + "from nova.tools.nova import main\nraise SystemExit(main(['cache', 'list']))"
    completed = run(code, HOME=None, XDG_CACHE_HOME=None)
    assert completed.returncode == 1
    assert completed.stderr.startswith("nova cache: this user has no home folder")
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize("error", ["EROFS", "ENOSPC", "EDQUOT", "EACCES"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, error: str) -> None:
    """The kernel's answers of a read-only or full disk, which no test can make for root."""
    code = f"""
import errno, os
true_open = os.open
def refuse(path, flags, *rest, **options):
    if flags & os.O_CREAT and str(path).startswith({str(tmp_path)!r}):
        raise OSError(errno.{error}, os.strerror(errno.{error}), path)
    return true_open(path, flags, *rest, **options)
os.open = refuse
"""
    completed = run(code + HELLO, XDG_CACHE_HOME=str(tmp_path))
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith(WANTED[:6])
    assert completed.stderr.count("CacheWarning") == 1 and "cannot be written" in completed.stderr


# --- no compiler ----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [("torch_mlir",), ("llvmlite",), ("torch_mlir", "llvmlite")])
def test_a_compile_without_the_compiler_says_what_to_install(
    tmp_path: Path, missing: tuple[str, ...]
) -> None:
    code = BLOCKED.format(names=missing) + HELLO
    completed = run(code, XDG_CACHE_HOME=str(tmp_path))
    assert completed.returncode == 1
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pins = [line for line in required if line.split("==")[0] in {COMPILER[m] for m in missing}]
    last = "\n".join(completed.stderr.splitlines()[-3:])
    assert (
        f"MissingPackageError: compiling needs {' and '.join(p.split('==')[0] for p in pins)}"
        in last
    )
    assert f"pip install {' '.join(pins)}" in last and "at <string>:" in last


def test_a_broken_package_is_not_a_missing_one() -> None:
    error = compiler_missing(OSError("libstdc++.so.6: version `GLIBCXX_3.4.32' not found"))
    assert isinstance(error, MissingPackageError) and isinstance(error, ImportError)
    assert "cannot be loaded: libstdc++" in error.what and "pip install" in error.hint


def test_install_command_has_the_versions_of_the_metadata() -> None:
    assert re.fullmatch(
        r"pip install llvmlite==[\d.]+ zebra", install_command(["llvmlite", "zebra"])
    )


@pytest.mark.parametrize("tool", ["nova_opt", "nova_translate"])
def test_the_tools_without_the_compiler(tool: str) -> None:
    start = BLOCKED.format(names=["torch_mlir"]) + f"from nova.tools.start import {tool}\n"
    completed = run(start + f"sys.argv[1:] = ['x.mlir']\nraise SystemExit({tool}())")
    assert completed.returncode == 1 and "pip install torch-mlir==" in completed.stderr
    assert "Traceback" not in completed.stderr
    completed = run(start + f"sys.argv[1:] = ['--version']\nraise SystemExit({tool}())")
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == f"{tool.replace('_', '-')} {nova.__version__}\n"


@pytest.mark.parametrize("tool", [nova_tool, nova_opt, nova_translate])
def test_every_tool_tells_its_version(tool: object, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        tool.main(["--version"])
    assert caught.value.code == 0
    name = tool.__name__.rpartition(".")[2].replace("_", "-")
    assert capsys.readouterr().out == f"{name} {nova.__version__}\n"


# --- did you mean ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name", "close"),
    [
        (nova, "sofmax", "softmax"),
        (nova, "Softmax", "softmax"),
        (nova, "to_devise", "to_device"),
        (nova, "zebra_crossing", None),
        (nova.nn, "Liner", "Linear"),
        (nova.nn, "relu", "ReLU"),
        (nova.optim, "adamw", "AdamW"),
        (nova.optim, "Adam2", "Adam"),
        (nova.knobs, "thread", "threads"),
        (nova.tensor(1.0), "summ", "sum"),
        (nova.tensor(1.0), "requires_gard", "requires_grad"),
        (nova.tensor(1.0), "_repr_html_", None),
    ],
)
def test_a_misspelt_name(owner: object, name: str, close: str | None) -> None:
    assert not hasattr(owner, name)
    with pytest.raises(UnknownNameError) as caught:
        getattr(owner, name)
    assert isinstance(caught.value, AttributeError) and caught.value.name == name
    assert caught.value.hint == (f"did you mean {close!r}?" if close else None)


def test_imports_of_modules_and_names_still_work() -> None:
    code = """
import nova.nn.layers, nova.debug, nova.optim.adam
from nova.nn import init, Linear
from nova import nn, optim, train_step, errors
try:
    from nova import sofmax
except ImportError as error:
    assert "sofmax" in str(error)
import copy, pickle
t = nova.tensor([1.0, 2.0])
assert copy.copy(t).shape == pickle.loads(pickle.dumps(t)).shape == (2,)
"""
    completed = run(code)
    assert completed.returncode == 0, completed.stderr
