"""A file of about a megabyte cannot make the loader take much memory or much time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import measure
import pytest
from sound_files import FILLER, make_contents
from surgery import END, MAGIC, RECORD, Surgery, canonical

from nova.artifact.tables import KernelSpec
from nova.artifact.write import FileSpec, write_artifact

ROOT = Path(__file__).parents[2]
MEGABYTE = 1 << 20
# Objects of Python are some thirty times as large as the rows they are read from; texts shrink.
MOST_GROWTH = 64
MOST_SECONDS = 1.5


@pytest.fixture(scope="session")
def contents() -> FileSpec:
    return make_contents()


Make = Callable[[FileSpec], bytes]


def in_manifest(text: Callable[[dict[str, Any]], bytes]) -> Make:
    """A manifest of up to a megabyte."""

    def make(contents: FileSpec) -> bytes:
        file = Surgery(write_artifact(replace(contents, key={FILLER: "x" * MEGABYTE})))
        result = file.manifest
        result["key"] = {}
        file.set_manifest(text(result)[:MEGABYTE])
        return file.seal()

    return make


def with_rows(name: str, /, **fields: Any) -> Make:
    """The last record of a list of the manifest, as often as it fits."""

    def text(result: dict[str, Any]) -> bytes:
        row = {**result[name][-1], **fields}
        result[name] += [row] * ((MEGABYTE - 20_000) // (len(canonical(row)) + 1))
        return canonical(result)

    return in_manifest(text)


def with_key(result: dict[str, Any]) -> bytes:
    return canonical({**result, "key": {f"{i:x}": "" for i in range(90_000)}})


def with_features(result: dict[str, Any]) -> bytes:
    result["variants"][0]["features"] = [f"a{i:05}" for i in range(100_000)]
    return canonical(result)


def with_kernels(contents: FileSpec) -> bytes:
    """Thousands of kernels whose names are long, and the same."""
    (variant,) = contents.variants
    tables = variant.tables
    long = [letter * 16_000 for letter in "nl"]
    kernel = KernelSpec(long[0], tables.kernels[0].symbol, 1, "vector", 0, 0, long[1])
    many = replace(tables, kernels=(*tables.kernels, *[kernel] * 20_000))
    return write_artifact(replace(contents, variants=(replace(variant, tables=many),)))


def with_launches(contents: FileSpec) -> bytes:
    (variant,) = contents.variants
    launches = variant.tables.launches + variant.tables.launches[-1:] * 20_000
    tables = replace(variant.tables, launches=launches)
    return write_artifact(replace(contents, variants=(replace(variant, tables=tables),)))


def with_records(contents: FileSpec) -> bytes:
    """A hash for every byte of the first part of the file."""
    sealed = write_artifact(replace(contents, stages={}, source=""))
    body = bytes(Surgery(sealed).data)
    old = [RECORD.unpack_from(sealed, at) for at in range(len(body), len(sealed) - END.size, 48)]
    rows = [(i, 1) for i in range(old[0][1])]
    rows += [(i, 1) for i in range(old[-1][0], old[-1][0] + old[-1][1])]
    rows += [(offset, size) for offset, size, _ in old[1:-1]]
    records = b"".join(
        RECORD.pack(at, size, sha256(body[at : at + size]).digest()) for at, size in sorted(rows)
    )
    return body + records + END.pack(sha256(records).digest(), len(records), 0, MAGIC)


def with_stages(text: bytes) -> Make:
    """Texts of a megabyte after compression."""

    def make(contents: FileSpec) -> bytes:
        noise = {"noise": os.urandom(MEGABYTE).decode("latin-1")}
        file = Surgery(write_artifact(replace(contents, stages=noise)))
        file.set_stages(zlib.compress(text, 9).ljust(MEGABYTE, b"\0"))
        return file.seal()

    return make


CASES: dict[str, tuple[str, Make]] = {
    "many arguments": ("opened", with_rows("args")),
    "many empty shapes": ("opened", with_rows("args", shape=[], name="")),
    "many outputs": ("opened", with_rows("outputs", name="")),
    "many variants": ("check 'manifest-variants'", with_rows("variants")),
    "many keys": ("opened", in_manifest(with_key)),
    "many features": ("check 'cpu-features'", in_manifest(with_features)),
    "deep lists": ("check 'manifest-json'", in_manifest(lambda _: b'{"a":' + b"[" * MEGABYTE)),
    "long number": ("check 'manifest-json'", in_manifest(lambda _: b'{"a":' + b"9" * MEGABYTE)),
    "long string": ("check 'manifest-json'", in_manifest(lambda _: b'{"a":"' + b"x" * MEGABYTE)),
    "many kernels": ("opened", with_kernels),
    "many launches": ("opened", with_launches),
    "many hashes": ("opened", with_records),
    "text that explodes": (
        "check 'stages-size'",
        with_stages(b'{"plan":"' + b"x" * (200 * MEGABYTE) + b'"}'),
    ),
    "text just below the limit": (
        "opened",
        with_stages(b'{"plan":"' + b"x" * (30 * MEGABYTE) + b'"}'),
    ),
    "text that repeats the constants": (
        "check 'stages-size'",
        with_stages(canonical({"plan": "\x000,18000,l\x00" * 1_000_000})),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cost(name: str, contents: FileSpec, sound: Path, tmp_path: Path) -> None:
    outcome, make = CASES[name]
    path = tmp_path / "hostile.nova"
    path.write_bytes(make(contents))
    size = path.stat().st_size
    assert size < 8 * MEGABYTE
    completed = subprocess.run(
        [sys.executable, measure.__file__, sound / "full.nova", path],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert completed.returncode == 0, completed.stderr
    result = json.loads(completed.stdout)
    assert outcome in result["outcome"], result
    assert result["memory"] < MOST_GROWTH * size + 16 * MEGABYTE, result
    assert result["seconds"] < MOST_SECONDS * max(1, size / MEGABYTE), result
