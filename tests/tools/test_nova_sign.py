"""`nova keygen` and `nova sign`: keys and signed files, and what `nova inspect` says of them."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

import nova
from nova.artifact.seal import END
from nova.errors import ArtifactError
from nova.tools.nova import main


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program in the current folder, and the keys of two people."""
    monkeypatch.chdir(tmp_path)
    X = nova.tensor(np.ones(4, "f4"), name="X")
    nova.compile(X + 1, inputs=[X]).save("model.nova")
    assert main(["keygen", "ann"]) == main(["keygen", "bob"]) == 0
    return "model.nova"


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def fail(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 1
    output = capsys.readouterr()
    assert output.out == ""
    return output.err


def test_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    created = answer(capsys, "keygen", "ann")
    assert (created["private"], created["public"]) == ("ann.private.pem", "ann.public.pem")
    assert stat.S_IMODE(Path("ann.private.pem").stat().st_mode) == 0o600
    assert len(bytes.fromhex(created["key"])) == 32
    before = Path("ann.private.pem").read_bytes()
    assert "there is a key already" in fail(capsys, "keygen", "ann")
    assert Path("ann.private.pem").read_bytes() == before
    assert "cannot write the keys" in fail(capsys, "keygen", "nowhere/ann")
    assert main(["keygen", "bob"]) == 0
    assert "bob.public.pem" in capsys.readouterr().out


def test_signing_in_place_and_elsewhere(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    unsigned = Path(model).read_bytes()
    created = answer(capsys, "sign", model, "--key", "ann.private.pem", "-o", "signed.nova")
    assert Path(model).read_bytes() == unsigned and created["file"] == "signed.nova"
    listing = answer(capsys, "inspect", "signed.nova")["signed"]
    assert listing == {"key": created["key"], "valid": True}
    assert main(["sign", model, "--key", "ann.private.pem"]) == 0
    assert capsys.readouterr().out == f"{model} is signed by {created['key']}\n"
    assert Path(model).read_bytes() == Path("signed.nova").read_bytes()
    again = answer(capsys, "sign", model, "--key", "bob.private.pem")
    assert again["key"] != created["key"], "a new signature takes the place of the old one"
    assert Path(model).stat().st_size == Path("signed.nova").stat().st_size


def test_trusted_keys(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "sign", model, "--key", "ann.private.pem", "-o", "signed.nova")
    with nova.knobs.override(trusted_keys=Path("ann.public.pem")):
        assert nova.load("signed.nova") is not None
        assert main(["inspect", "signed.nova"]) == 0
        assert main(["run", "signed.nova", "--random"]) == 0
        for command in ("inspect", "run"):
            output = fail(capsys, command, model)
            assert "check 'signature-missing' failed" in output and f"at {model}" in output
    with (
        nova.knobs.override(trusted_keys=Path("bob.public.pem")),
        pytest.raises(ArtifactError, match="signature-unknown-key"),
    ):
        nova.load("signed.nova")


def test_a_signature_that_does_not_fit(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sign", model, "--key", "ann.private.pem"]) == 0
    data = bytearray(Path(model).read_bytes())
    data[-END.size - 1] ^= 1
    Path(model).write_bytes(data)
    assert answer(capsys, "inspect", model)["signed"]["valid"] is False
    assert main(["inspect", model]) == 0
    assert "(the signature does NOT fit)" in capsys.readouterr().out


def test_without_the_package(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sign", model, "--key", "ann.private.pem"]) == 0
    for name in [*sys.modules]:
        if name.split(".")[0] == "cryptography":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert answer(capsys, "inspect", model)["signed"]["valid"] is None
    assert main(["inspect", model]) == 0
    assert "not checked: the package cryptography is not installed" in capsys.readouterr().out
    output = fail(capsys, "sign", model, "--key", "ann.private.pem")
    assert "signatures need the package `cryptography`" in output and "pip install" in output


def test_what_is_not_signed(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(model).read_bytes()
    assert "cannot read the key" in fail(capsys, "sign", model, "--key", "gone.pem")
    output = fail(capsys, "sign", model, "--key", "ann.public.pem")
    assert "not a private key" in output and "nova keygen" in output
    Path("damaged.nova").write_bytes(data[:5000] + bytes([data[5000] ^ 1]) + data[5001:])
    output = fail(capsys, "sign", "damaged.nova", "--key", "ann.private.pem", "-o", "out.nova")
    assert "check 'seal" in output and not Path("out.nova").exists()
    output = fail(capsys, "sign", model, "--key", "ann.private.pem", "-o", "nowhere/out.nova")
    assert "No such file" in output
    assert Path(model).read_bytes() == data
