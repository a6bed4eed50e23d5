"""PTX is checked by ptxas before it goes into a file, once, and only then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from test_ptxas import PROGRAM, SAID, write_program

import nova
from nova.artifact.cubins import ptxas
from nova.artifact.cubins.ptxas import find_ptxas
from nova.compiler.gpu import ptx_check
from nova.errors import PtxasError

VERSION = 'echo "Cuda compilation tools, release 12.9, V12.9.41"; exit 0'


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path) -> Iterator[None]:
    """Nothing is known from other tests."""
    ptx_check._accepted.clear()
    ptxas._version_of.cache_clear()
    with nova.knobs.override(cache_dir=tmp_path / "cache"):
        yield
    ptx_check._accepted.clear()


def pretend(folder: Path, output: str, status: int = 0) -> Path:
    """A ptxas that says something, and counts how often it assembled."""
    (folder / "said").write_text(output)
    return write_program(
        folder,
        f"""[ "$1" = --version ] && {{ {VERSION}; }}
echo once >> {folder}/calls; cat {folder}/said >&2; echo code > kernels.cubin; exit {status}""",
    )


def calls(folder: Path) -> int:
    path = folder / "calls"
    return len(path.read_text().split()) if path.exists() else 0


def test_translated_code_is_checked_once(tmp_path: Path) -> None:
    program = pretend(tmp_path, "")
    with nova.knobs.override(ptxas=program):
        unchecked = nova.translate(PROGRAM, targets="cuda:sm_80", emit="ptx")
        assert unchecked.data and calls(tmp_path) == 0
        first = nova.translate(PROGRAM, targets=["cuda:sm_80", "cuda:sm_90a"])
        assert calls(tmp_path) == 2
        ptx_check._accepted.clear()  # as in another process
        again = nova.translate(PROGRAM, targets=["cuda:sm_80", "cuda:sm_90a"])
        assert calls(tmp_path) == 2 and again.data == first.data
        with nova.knobs.override(cache=False):
            nova.translate(PROGRAM, targets="cuda:sm_80")
            assert calls(tmp_path) == 2, "known in this process"
            ptx_check._accepted.clear()
            nova.translate(PROGRAM, targets="cuda:sm_80")
            assert calls(tmp_path) == 3
    with nova.knobs.override(ptxas=program, check_ptx=False):
        ptx_check._accepted.clear()
        off = nova.translate(PROGRAM, targets=["cuda:sm_80", "cuda:sm_90a"])
        assert calls(tmp_path) == 3 and off.data == first.data


def test_saved_code_is_checked_and_run_code_is_not(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 64, dtype="f4")
    arguments = nova.tensor(x, name="x")
    options = {"target": "cuda:sm_80", "run_mode": "sim"}
    path = tmp_path / "p.nova"
    with nova.knobs.override(ptxas=pretend(tmp_path, SAID)):
        program = nova.compile(nova.tanh(arguments), inputs=[arguments], **options)
        np.testing.assert_allclose(program(x), np.tanh(x), rtol=1e-5)
        assert calls(tmp_path) == 0
        for _ in range(2):
            with pytest.raises(PtxasError, match="wide_kernel spills 48 bytes with 255"):
                program.save(path)
        assert not path.exists() and calls(tmp_path) == 1
        with nova.knobs.override(spills="wide_kernel"):
            program.save(path)
        assert calls(tmp_path) == 1
    np.testing.assert_allclose(nova.load(path, device="sim")(x), np.tanh(x), rtol=1e-5)
    on_host = nova.compile(nova.tanh(arguments), inputs=[arguments])
    with nova.knobs.override(ptxas="/nowhere/ptxas"):
        on_host.save(path)  # nobody asks for an assembler there


def test_refused_code_is_not_remembered(tmp_path: Path) -> None:
    output = "ptxas kernels.ptx, line 100; error   : Unknown modifier"
    with nova.knobs.override(ptxas=pretend(tmp_path, output, 255)):
        for count in (1, 2):
            with pytest.raises(PtxasError) as caught:
                nova.translate(PROGRAM, targets="cuda:sm_80")
            assert "does not take kernel_0_kernel for sm_80" in str(caught.value)
            assert "Unknown modifier" in str(caught.value) and calls(tmp_path) == count


@pytest.mark.parametrize(
    "output",
    [
        "kernels.ptx, line 5; fatal   : Unsupported .version 8.0; current version is '7.4'",
        "ptxas fatal   : Value 'sm_90a' is not defined for option 'gpu-name'",
    ],
)
def test_an_old_assembler_is_no_judge(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with nova.knobs.override(ptxas=pretend(tmp_path, output, 1), log="compile"):
        assert nova.translate(PROGRAM, targets="cuda:sm_90a").data
        assert calls(tmp_path) == 1
    assert "too old to check code for sm_90a" in capsys.readouterr().err


def test_a_damaged_memory_is_no_memory(tmp_path: Path) -> None:
    with nova.knobs.override(ptxas=pretend(tmp_path, "")):
        nova.translate(PROGRAM, targets="cuda:sm_80")
        registered = tmp_path / "cache" / "ptxas-accepted"
        key = registered.read_text().split()[0]
        for damage in (f"{key} [1]\n", f"{key} {{\n", "", "\0" * 100):
            registered.write_text(damage)
            ptx_check._accepted.clear()
            before = calls(tmp_path)
            nova.translate(PROGRAM, targets="cuda:sm_80")
            assert calls(tmp_path) == before + 1
        registered.write_bytes(b"x" * (ptx_check._MOST_BYTES + 1))
        ptx_check._accepted.clear()
        nova.translate(PROGRAM, targets="cuda:sm_80")
        assert registered.read_text() == f"{key} {{}}\n"


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
def test_the_real_one_takes_a_file_for_two_devices(tmp_path: Path) -> None:
    nova.translate(PROGRAM, targets=["cuda:sm_80", "cuda:sm_90a"])
    assert len((tmp_path / "cache" / "ptxas-accepted").read_text().splitlines()) == 2
