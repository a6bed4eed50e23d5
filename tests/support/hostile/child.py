"""Damaged files through the loader, in a process of their own: `child.py MODE FOLDER FIRST LAST`.

The sound files are in FOLDER; the damaged ones are those of the numbers from FIRST up to LAST. The
number of the file at work is printed first, so that whoever started this process knows which file
has killed it. Mode `load` opens, looks at, and runs what may be run; mode `inspect` is the command.
The last line is a summary in JSON. A wrong answer is an exception, which names the number. Mode
`load+crash` and its like do so at the fourth file, to show that it is noticed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mutations import CODE, PROGRAM, Mutant, mutate
from sound_files import HYBRID
from surgery import Surgery

import nova
from nova.api import load as loading
from nova.artifact.format import Artifact, load_artifact, read_artifact
from nova.artifact.tables import BUFFER, HEADER, KERNEL, UNLINKED
from nova.errors import ArtifactError, DeviceArchitectureError, NovaError, PtxError

SECONDS = 30
MEMORY = 1 << 30
CHECK = re.compile(r"check '([a-z]+-[a-z-]+)' failed: ")

Outcome = str


class Loader:
    """Loads damaged files: what is accepted must be the program that the sound file holds."""

    def __init__(self, folder: Path, seeds: dict[str, bytes]):
        self.folder, self.seeds = folder, seeds
        self.sound = {name: read_artifact(data) for name, data in seeds.items()}
        self.meanings = {name: meaning(file, file) for name, file in self.sound.items()}
        # As where only the runtime is installed: else a file for another CPU would be compiled.
        loading.missing_packages = lambda: ["llvmlite"]

    def try_file(self, mutant: Mutant, path: Path) -> Outcome:
        try:
            artifact = load_artifact(path)
            look_at(artifact)
            sound = self._find(mutant, artifact)
            model = nova.load(path, device="sim" if (sound or mutant.seed) == HYBRID else None)
        except ArtifactError as error:
            return check_of(error)
        except (DeviceArchitectureError, PtxError):
            # Its seal and tables are sound, and its device code is damaged or for another device.
            assert mutant.sealed, "damage that the seal shows"
            return "device code refused"
        if mutant.how == CODE:
            return "other code"  # which may do anything: only a signature is against that
        inputs, params, outputs = read_arrays(self.folder / f"{sound or mutant.seed}.npz")
        try:
            results = model.run(inputs, params or None)
        except NovaError:
            assert sound is None, "a sound program was refused"
            return "another program, refused by its run"
        if sound is not None:
            assert are_equal(results, outputs), "a wrong answer"
            return "the same program"
        return "another program" + (", same results" if are_equal(results, outputs) else "")

    def _find(self, mutant: Mutant, artifact: Artifact) -> str | None:
        """The sound file that has the same meaning; None for another program."""
        if mutant.sealed:
            identical = meaning(artifact, self.sound[mutant.seed]) == self.meanings[mutant.seed]
            return mutant.seed if identical else None
        # The hashes find everything but a signature, which matters to those who ask for one. A
        # splice may give back a whole sound file.
        for name, data in self.seeds.items():
            body = Surgery(data).data
            if artifact.data[: len(body)] == body:
                assert artifact.file.digest == self.sound[name].file.digest
                return name
        raise AssertionError("damage was accepted")


def are_equal(results: Any, outputs: list[Any]) -> bool:
    """The same bits, types and number of arrays."""
    pairs = list(zip(results, outputs, strict=False))
    identical = all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)
    return identical and len(results) == len(outputs)


class Inspector:
    """Shows damaged files with `nova inspect`."""

    def __init__(self, folder: Path, seeds: dict[str, bytes]):
        from nova.tools.nova import main

        self.main = main

    def try_file(self, mutant: Mutant, path: Path) -> Outcome:
        out, err = io.StringIO(), io.StringIO()
        form = ["--json"] if mutant.number % 4 < 2 else []
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = self.main(["inspect", *form, str(path)])
        if status == 0:
            text = out.getvalue()
            assert json.loads(text) if form else text.replace("\n", "").isprintable()
            return "shown"
        result = CHECK.search(err.getvalue())
        assert result is not None and not out.getvalue(), err.getvalue()
        return result[1]


def meaning(artifact: Artifact, sound: Artifact) -> Any:
    """What a run of the file depends on: the same meaning has to give the same results.

    Whoever makes the hashes right may as well write another program; what this compares is what
    the reader cannot know to be wrong. Code and data are read where they are in the sound file.
    """
    manifest, file = artifact.manifest, artifact.file
    signature = [
        [(t.shape, t.dtype, t.role, t.donated, t.alias) for t in tensors]
        for tensors in (manifest.args, manifest.outputs)
    ]
    variants = []
    for number, variant in enumerate(manifest.variants):
        tables, block = artifact.tables(number), file.tables(number)
        counts = HEADER.unpack_from(block)[4:6]
        start = HEADER.size + counts[0] * BUFFER.size
        code = [KERNEL.unpack_from(block, start + i * KERNEL.size)[0] for i in range(counts[1])]
        # Kernels for a device have no code here: their symbol names it.
        grids = [
            (k.grid, k.takes_scratch, k.core in UNLINKED and (k.core, k.symbol, k.device))
            for k in tables.kernels
        ]
        variants.append(
            (
                variant.features,
                file.constants_vaddr(number),
                variant.constants,
                (tables.buffers, grids, code, tables.launches, tables.tasks),
                (tables.workspace_size, tables.scratch_size),
            )
        )
    data = artifact.data
    program = [
        (bytes(data[offset : offset + size]), flags_at(data, offset, size))
        for name, (_, offset, size) in sound.file.sections.items()
        if name in PROGRAM
    ]
    return (
        signature,
        manifest.weights,
        variants,
        program,
        bytes(artifact.section(".rela.dyn")),
    )


def flags_at(data: memoryview, vaddr: int, size: int) -> int | None:
    """The protection that some bytes are mapped with; None when they are not, or not whole."""
    file = np.frombuffer(data, np.uint8)
    start, count = int.from_bytes(file[32:40], "little"), int.from_bytes(file[56:58], "little")
    for at in range(start, start + 56 * count, 56):
        variant, flags = file[at : at + 8].view("<u4")
        offset, low, _, alive = map(int, file[at + 8 : at + 40].view("<u8"))
        if variant == 1 and low <= vaddr and vaddr + size <= low + alive and offset == low:
            return int(flags)
    return None


def look_at(artifact: Artifact) -> None:
    """Everything that there is to see, byte by byte."""
    file = artifact.file
    for number, _ in enumerate(artifact.manifest.variants):
        assert artifact.tables(number).workspace_size >= 0
        assert isinstance(file.missing(number), str)
    for name, (_, _, size) in file.sections.items():
        with contextlib.suppress(KeyError):  # sections without bytes
            assert len(bytes(file.section(name))) == size
    assert all(len(value) >= 0 for value in artifact.weights().values())
    assert len(file.digest) == 32 and len(file.symbols) >= 0 and len(file.imports) >= 0
    assert all(isinstance(text, str) for text in artifact.stages().values())


def read_arrays(path: Path) -> tuple[list[Any], list[Any], list[Any]]:
    with np.load(path) as result:
        return tuple(  # type: ignore[return-value]
            [result[f"{variant}{i}"] for i in range(len(result)) if f"{variant}{i}" in result]
            for variant in ("input", "param", "output")
        )


def check_of(error: ArtifactError) -> str:
    """The check that an error names."""
    result = CHECK.match(error.what)
    assert result is not None, error.what
    return result[1]


def limit_memory() -> None:
    """What a file of this size may take on top of what the process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


MODES: dict[str, Callable[[Path, dict[str, bytes]], Loader | Inspector]] = {
    "load": Loader,
    "inspect": Inspector,
}


def wrong() -> None:
    raise AssertionError("a wrong answer")


FAULTS: dict[str, Callable[[], object]] = {
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "hang": lambda: (signal.alarm(1), time.sleep(SECONDS)),
    "wrong": wrong,
}


def main(mode: str, folder: Path, first: int, last: int, scratch: Path) -> None:
    mode, _, fault = mode.partition("+")
    seeds = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.nova"))}
    tester = MODES[mode](folder, seeds)
    limit_memory()
    outcomes: Counter[str] = Counter()
    path = scratch / f"{mode}-{first}.nova"
    for number in range(first, last):
        print(number, flush=True)
        signal.alarm(SECONDS)  # ends the process, also when C code hangs
        mutant = mutate(seeds, number)
        path.unlink(missing_ok=True)  # to write over a file takes longer than to make one
        path.write_bytes(mutant.data)
        try:
            if fault and number == first + 3:
                FAULTS[fault]()
            outcome = tester.try_file(mutant, path)
        except BaseException as error:
            error.add_note(f"file {number}: {mutant.seed}, {mutant.how}, sealed: {mutant.sealed}")
            raise
        outcomes[f"{'sealed' if mutant.sealed else 'open'}: {outcome}"] += 1
    print(json.dumps(outcomes))


if __name__ == "__main__":
    mode, folder, first, last, scratch = sys.argv[1:]
    main(mode, Path(folder), int(first), int(last), Path(scratch))
