"""`NOVA_DUMP=dir`: the text of every stage as files, one folder for each program.

Called while a program compiles, and by `nova.compiler` for one that comes from the disk cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nova import knobs

_SUFFIXES = {"plan": "plan", "ll": "ll"}


def dump_stage(program: str, number: int, stage: str, text: str) -> None:
    """Write one stage as `dir/program/number-stage.suffix`, if there is a folder to dump to."""
    folder = knobs.get("dump")
    if folder:
        path = Path(folder) / program
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{number}-{stage}.{_SUFFIXES.get(stage, 'mlir')}").write_text(text)


def dump_stages(program: str, texts: Mapping[str, str]) -> None:
    """Write all stages of a program that is already compiled."""
    if knobs.get("dump"):
        for number, (stage, text) in enumerate(texts.items()):
            dump_stage(program, number, stage, text)
