"""Ed25519 signatures of files, with keys in PEM files, through the package `cryptography`.

`sign_artifact` signs a file (`Compiled.save(key=...)`, `nova-translate --sign`, `nova sign`),
`make_key_pair` generates keys, and `check_trust` refuses files that are not signed by a key of the
knob `trusted_keys`. Loading calls it before any code is mapped. The disk cache does not: its folder
is private to the user, who compiled its contents.

A signature covers the digest of the seal, and so every byte of the file. The package is imported
only when a key is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nova import knobs
from nova.artifact.check import Buffer, fail
from nova.artifact.files import write_atomically
from nova.artifact.seal import add_signature
from nova.errors import TrustError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES = 32
_SUFFIX = ".pem"
# The points of small order, whose sign bit does not matter: anybody can sign for such a key.
_WEAK_KEYS = {
    bytes.fromhex(text)
    for text in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
}
# No key is longer; a path to another file is not read to its end.
_MOST_BYTES = 1 << 16


def sign_artifact(data: Buffer, key: str | Path) -> bytes:
    """The bytes of a file, signed with the private key in file `key`; replaces an old signature."""
    return add_signature(data, read_private_key(key))


def make_key_pair(prefix: str | Path) -> tuple[Path, Path]:
    """Write `<prefix>.private.pem` and `<prefix>.public.pem`; TrustError if one exists."""
    ed25519, serialization = _library()
    private, public = (Path(f"{prefix}.{role}{_SUFFIX}") for role in ("private", "public"))
    for path in (private, public):
        if path.exists():
            raise TrustError("there is a key already, which is not replaced", where=str(path))
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public_bytes = key.public_key().public_bytes(
        pem, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    try:
        write_atomically(private, secret, mode=0o600)
        write_atomically(public, public_bytes)
    except OSError as error:
        raise TrustError(f"cannot write the keys: {error.strerror}", where=str(prefix)) from error
    return private, public


def read_private_key(path: str | Path) -> Ed25519PrivateKey:
    """The Ed25519 private key of a PEM file without a password."""
    ed25519, serialization = _library()
    try:
        key = serialization.load_pem_private_key(_read(path), password=None)
    except (TypeError, ValueError) as error:  # TypeError: it has a password
        raise TrustError(
            f"this is not a private key that Nova can use: {error}",
            where=str(path),
            hint="an Ed25519 key in PEM form without a password; `nova keygen` makes one",
        ) from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise TrustError(f"the key is of kind {type(key).__name__}, not Ed25519", where=str(path))
    return key


def read_public_keys(paths: Iterable[str | Path]) -> tuple[bytes, ...]:
    """The 32 bytes of every Ed25519 public key in PEM files, and in folders of `.pem` files."""
    return tuple([_read_public_key(path) for entry in paths for path in _key_files(Path(entry))])


def check_trust(digest: bytes, signature: bytes | None) -> None:
    """ArtifactError unless a trusted key has signed the digest of a file's seal.

    Does nothing if the knob `trusted_keys` is empty.
    """
    trusted = knobs.get("trusted_keys")
    if trusted:
        check_signature(digest, signature, read_public_keys(trusted))


def check_signature(digest: bytes, signature: bytes | None, trusted: Sequence[bytes]) -> None:
    """ArtifactError unless one of the `trusted` keys has made this signature block."""
    if signature is None:
        fail("signature-missing", "the file is not signed, and NOVA_TRUSTED_KEYS is set")
    key, signed = signature[:KEY_BYTES], signature[KEY_BYTES:]
    if key not in trusted:
        fail("signature-unknown-key", f"signed by {key.hex()}, which is not in NOVA_TRUSTED_KEYS")
    if not is_signed(digest, signature):
        fail("signature-wrong", f"{signed[:8].hex()}... is not the signature of this file")


def is_signed(digest: bytes, signature: bytes) -> bool:
    """Whether the key in a signature block has signed the digest, trusted or not."""
    ed25519, _ = _library()
    from cryptography.exceptions import InvalidSignature

    key = signature[:KEY_BYTES]
    if _is_weak(key):
        return False
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature[KEY_BYTES:], digest)
    except (InvalidSignature, ValueError):
        return False
    return True


# --- internals ------------------------------------------------------------------------------------


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise TrustError(
            "signatures need the package `cryptography`, which is not installed",
            hint="pip install cryptography; to load files without a check of signatures, leave "
            "NOVA_TRUSTED_KEYS unset",
        ) from None
    return ed25519, serialization


def _read(path: str | Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise TrustError(f"cannot read the key: {error.strerror}", where=str(path)) from error


def _key_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        files = sorted(path / name for name in os.listdir(path) if name.endswith(_SUFFIX))
    except OSError as error:
        raise TrustError(f"cannot read the folder: {error.strerror}", where=str(path)) from error
    if not files:
        # Every file would be refused, for a reason that is hard to see.
        raise TrustError(f"the folder has no {_SUFFIX} file", where=str(path))
    return files


def _read_public_key(path: Path) -> bytes:
    ed25519, serialization = _library()
    try:
        key = serialization.load_pem_public_key(_read(path))
    except ValueError as error:
        raise TrustError(
            f"this is not a public key: {error}",
            where=str(path),
            hint="NOVA_TRUSTED_KEYS takes public keys; private ones stay with who signs",
        ) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise TrustError(f"the key is of kind {type(key).__name__}, not Ed25519", where=str(path))
    data = key.public_bytes_raw()
    if _is_weak(data):
        raise TrustError("anybody can sign for this key: it is a weak key", where=str(path))
    return bytes(data)


def _is_weak(key: bytes) -> bool:
    return key[:-1] + bytes([key[-1] & 0x7F]) in _WEAK_KEYS
