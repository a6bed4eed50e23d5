"""`NOVA_DUMP=dir`: the text of every stage as files, one folder for each program.

Called while a program compiles, and by `nova.compiler` for one that comes from the disk cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nova import knobs
from nova.errors import DumpError

_SUFFIXES = {"plan": "plan", "ll": "ll"}


def dump_stage(program: str, number: int, stage: str, text: str) -> None:
    """Write one stage as `dir/program/number-stage.suffix`, if there is a folder to dump to."""
    folder = knobs.get("dump")
    if folder:
        path = Path(folder) / program
        file = path / f"{number}-{stage}.{_SUFFIXES.get(stage, 'mlir')}"
        try:
            path.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise DumpError(
                f"cannot write a stage to the folder of NOVA_DUMP: {error.strerror}",
                where=str(file),
                hint="set NOVA_DUMP to a folder that can be written, or unset it",
            ) from None


def dump_stages(program: str, texts: Mapping[str, str]) -> None:
    """Write all stages of a program that is already compiled."""
    if knobs.get("dump"):
        for number, (stage, text) in enumerate(texts.items()):
            dump_stage(program, number, stage, text)
