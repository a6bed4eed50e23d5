"""What opening a file costs: `measure.py SOUND FILE`.

SOUND is opened first, so that only FILE is measured. Prints, as JSON, the memory that the process
took at most on top, the seconds of processor time, and how it ended.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import nova
from nova.api import load as loading
from nova.artifact.format import load_artifact
from nova.errors import ArtifactError


def peak() -> int:
    """The most memory that this process has had; that of `getrusage` may be its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def open_all(path: str) -> str:
    """Load the program, then look at all that is in the file."""
    try:
        model = nova.load(path)
        artifact = load_artifact(path)
        for number in range(len(artifact.manifest.variants)):
            artifact.tables(number)
        _ = artifact.file.symbols, artifact.file.sections, artifact.weights()
        artifact.stages()
    except ArtifactError as error:
        return error.what
    return f"{model.name} opened"


def main(sound: str, path: str) -> None:
    loading.missing_packages = lambda: ["llvmlite"]
    open_all(sound)
    memory, started = peak(), time.process_time()
    outcome = open_all(path)
    seconds = time.process_time() - started
    print(json.dumps({"memory": peak() - memory, "seconds": seconds, "outcome": outcome}))


if __name__ == "__main__":
    main(*sys.argv[1:])
