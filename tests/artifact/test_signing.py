"""Signed files: what `NOVA_TRUSTED_KEYS` lets in, what it refuses, and which check says so."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

import nova
from nova.api import load as loading
from nova.api.compile import clear_memory_cache
from nova.artifact.format import load_artifact
from nova.artifact.seal import END, SIGNATURE_SIZE
from nova.artifact.sign import (
    check_signature,
    is_signed,
    make_key_pair,
    read_public_keys,
    sign_artifact,
)
from nova.errors import ArtifactError, TrustError

PEM = serialization.Encoding.PEM
PKCS8 = serialization.PrivateFormat.PKCS8
X = np.arange(4, dtype="f4")


def make_program(number: float = 1.0) -> nova.Compiled:
    x = nova.tensor(X, name="x")
    return nova.compile(x * 2 + number, inputs=[x])


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    folder = tmp_path / "keys"
    folder.mkdir()
    return make_key_pair(folder / "ours")


@pytest.fixture
def signed(tmp_path: Path, keys: tuple[Path, Path]) -> Path:
    path = tmp_path / "signed.nova"
    make_program().save(path, key=keys[0])
    return path


def refused(path: Path, check: str) -> ArtifactError:
    with pytest.raises(ArtifactError, match=f"check '{check}' failed") as caught:
        nova.load(path)
    assert caught.value.where == str(path)
    return caught.value


def test_a_signed_file_loads(signed: Path, keys: tuple[Path, Path]) -> None:
    want = make_program()(X)
    np.testing.assert_array_equal(nova.load(signed)(X), want)
    for trusted in (keys[1], [keys[1]], str(keys[1])):
        with nova.knobs.override(trusted_keys=trusted):
            np.testing.assert_array_equal(nova.load(signed)(X), want)


def test_keys_come_from_several_files_and_from_folders(
    signed: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    _, second = make_key_pair(tmp_path / "other")
    folder = tmp_path / "trusted"
    folder.mkdir()
    for path in (second, keys[1]):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "README").write_text("only .pem files are keys")
    for trusted in ([second, keys[1]], f"{second}:{keys[1]}", folder, [folder, second]):
        with nova.knobs.override(trusted_keys=trusted):
            assert nova.load(signed)(X) is not None
    assert len(read_public_keys([folder])) == 2


def test_what_is_not_signed_by_a_trusted_key_is_refused(
    signed: Path, keys: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def map_code(*_: object) -> None:
        raise AssertionError("a file that is not trusted was given to the executor")

    monkeypatch.setattr(loading, "Executable", map_code)
    plain = tmp_path / "plain.nova"
    make_program().save(plain)
    private, public = make_key_pair(tmp_path / "other")
    strange = tmp_path / "strange.nova"
    make_program().save(strange, key=private)
    forged = tmp_path / "forged.nova"
    data = bytearray(signed.read_bytes())
    data[-END.size - 1] ^= 1
    forged.write_bytes(data)
    swapped = tmp_path / "swapped.nova"  # our key in front of their signature
    data = bytearray(strange.read_bytes())
    (actual,) = read_public_keys([keys[1]])
    at = len(data) - END.size - SIGNATURE_SIZE
    data[at : at + len(actual)] = actual
    swapped.write_bytes(data)
    with nova.knobs.override(trusted_keys=keys[1]):
        refused(plain, "signature-missing")
        assert read_public_keys([public])[0].hex() in refused(strange, "signature-unknown-key").what
        refused(forged, "signature-wrong")
        refused(swapped, "signature-wrong")


def test_a_signature_belongs_to_every_byte(signed: Path, keys: tuple[Path, Path]) -> None:
    """Another program under the same signature is noticed, with every hash of it right."""
    actual = signed.read_bytes()
    signature = actual[-END.size - SIGNATURE_SIZE : -END.size]
    path = signed.with_name("other.nova")
    make_program(7.0).save(path, key=keys[0])
    second = bytearray(path.read_bytes())
    second[-END.size - SIGNATURE_SIZE : -END.size] = signature
    path.write_bytes(second)
    with nova.knobs.override(trusted_keys=keys[1]):
        refused(path, "signature-wrong")


def test_signing_again_takes_the_place_of_the_old_signature(
    signed: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    private, public = make_key_pair(tmp_path / "other")
    data = sign_artifact(signed.read_bytes(), private)
    assert len(data) == signed.stat().st_size
    signed.write_bytes(data)
    with nova.knobs.override(trusted_keys=public):
        nova.load(signed)
    with nova.knobs.override(trusted_keys=keys[1]):
        refused(signed, "signature-unknown-key")


def test_the_signature_can_be_looked_at(signed: Path, keys: tuple[Path, Path]) -> None:
    file = load_artifact(signed).file
    trusted = read_public_keys([keys[1]])
    assert len(file.digest) == 32 and len(file.signature) == SIGNATURE_SIZE
    assert is_signed(file.digest, file.signature)
    assert not is_signed(bytes(32), file.signature)
    assert not is_signed(file.digest, file.signature[:-1] + b"\xff")
    for weak in (bytes(32), b"\1" + bytes(31), b"\1" + bytes(30) + b"\x80"):
        assert not is_signed(file.digest, weak + bytes(64)), "anybody can make that one"
    check_signature(file.digest, file.signature, trusted)
    with pytest.raises(ArtifactError, match="signature-unknown-key"):
        check_signature(file.digest, file.signature, ())


def test_a_loaded_file_keeps_its_signature(
    signed: Path, keys: tuple[Path, Path], tmp_path: Path
) -> None:
    nova.load(signed).save(tmp_path / "copy.nova")
    assert (tmp_path / "copy.nova").read_bytes() == signed.read_bytes()


def with_param() -> nova.Compiled:
    x, w = nova.tensor(X, name="x"), nova.tensor(X + 1, name="w")
    return nova.compile(x * w, inputs=[x], params=[w])


@pytest.mark.parametrize("weights", ["embed", "external"])
@pytest.mark.parametrize("inputs", [None, {"w": X + 5}])
def test_a_signed_translation_stays_signed_with_weights(
    keys: tuple[Path, Path], tmp_path: Path, weights: str, inputs: dict[str, np.ndarray] | None
) -> None:
    private, public = keys
    created = nova.translate(with_param()).sign(private)
    private.unlink()  # the key was read when it signed
    path = tmp_path / "signed.nova"
    created.save(path, weights, params=inputs)
    with nova.knobs.override(trusted_keys=[public]):
        result = nova.load(path)
        np.testing.assert_array_equal(
            result.forward(X), X * (X + 1 if inputs is None else inputs["w"])
        )
    created.save(tmp_path / "plain.nova", weights, drop_signature=True)
    assert load_artifact(tmp_path / "plain.nova").file.signature is None


def test_a_signature_is_never_dropped_silently(keys: tuple[Path, Path], tmp_path: Path) -> None:
    private, public = keys
    path, second = tmp_path / "signed.nova", tmp_path / "other.nova"
    with_param().save(path, "embed", key=private)
    loaded = nova.load(path)
    for options in ({"weights": "embed"}, {"params": [X]}, {"weights": "external"}):
        with pytest.raises(TrustError, match="its signature does not hold") as caught:
            loaded.save(second, **options)
        assert "drop_signature=True" in (caught.value.hint or "") and not second.exists()
    loaded.save(second)
    assert second.read_bytes() == path.read_bytes()
    loaded.save(second, params=[X + 3], key=private)
    with nova.knobs.override(trusted_keys=[public]):
        np.testing.assert_array_equal(nova.load(second).forward(X), X * (X + 3))
    loaded.save(second, params=[X + 3], drop_signature=True)
    assert load_artifact(second).file.signature is None
    np.testing.assert_array_equal(nova.load(second).forward(X), X * (X + 3))


def test_the_users_own_cache_needs_no_signatures(keys: tuple[Path, Path], tmp_path: Path) -> None:
    with nova.knobs.override(trusted_keys=keys[1], cache_dir=tmp_path / "cache"):
        assert make_program(99.0).origin == "compiled"
        clear_memory_cache()
        assert make_program(99.0).origin == "disk"


# --- keys -----------------------------------------------------------------------------------------


def test_a_key_pair_is_private_and_never_replaced(tmp_path: Path) -> None:
    private, public = make_key_pair(tmp_path / "k")
    assert (private.name, public.name) == ("k.private.pem", "k.public.pem")
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    before = private.read_bytes()
    with pytest.raises(TrustError, match="there is a key already"):
        make_key_pair(tmp_path / "k")
    assert private.read_bytes() == before
    with pytest.raises(TrustError, match="cannot write the keys"):
        make_key_pair(tmp_path / "missing" / "k")


def other_keys(folder: Path) -> dict[str, Path]:
    """Files that are no private Ed25519 key in PEM form without a password."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = serialization.NoEncryption()
    locked = serialization.BestAvailableEncryption(b"secret")
    created = {
        "RSA": key.private_bytes(PEM, PKCS8, plain),
        "password": ed25519.Ed25519PrivateKey.generate().private_bytes(PEM, PKCS8, locked),
        "not a private key": b"text",
    }
    for word, data in created.items():
        (folder / f"{word}.key").write_bytes(data)
    return {word: folder / f"{word}.key" for word in created} | {"No such file": folder / "none"}


def test_keys_that_cannot_sign(tmp_path: Path) -> None:
    path = tmp_path / "p.nova"
    for word, key in other_keys(tmp_path).items():
        with pytest.raises(TrustError, match=f"(?i){word}") as caught:
            make_program().save(path, key=key)
        assert caught.value.where == str(key)
    assert not path.exists(), "nothing was written"


def test_keys_that_cannot_be_trusted(signed: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    public = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    strange = tmp_path / "rsa.pem"
    strange.write_bytes(public.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    weak = tmp_path / "weak.pem"
    zero = ed25519.Ed25519PublicKey.from_public_bytes(bytes(32))
    weak.write_bytes(zero.public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
    for path, message in {
        weak: "anybody can sign for this key",
        keys[0]: "this is not a public key",  # private keys stay with who signs
        strange: "not Ed25519",
        empty: r"has no \.pem file",
        tmp_path / "none.pem": "No such file",
    }.items():
        # A key that cannot be read is no reason to go on without it.
        with nova.knobs.override(trusted_keys=[keys[1], path]):
            with pytest.raises(TrustError, match=message) as caught:
                nova.load(signed)
            assert caught.value.where == str(path)


def test_without_the_package(
    signed: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert nova.load(signed)(X) is not None, "no key is asked for"
    with (
        nova.knobs.override(trusted_keys=keys[1]),
        pytest.raises(TrustError, match=r"`cryptography`[\s\S]*pip install cryptography"),
    ):
        nova.load(signed)
    with pytest.raises(TrustError, match="not installed"):
        make_program().save(signed.with_name("new.nova"), key=keys[0])
