"""`NOVA_DUMP=dir`: writes the text of every stage to files, one folder for each program.

Called during a compile, by `nova.api.compile` for a program from the disk cache, and by
`nova-translate --dump-stages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nova import knobs
from nova.errors import DumpError

_SUFFIXES = {"plan": "plan", "ll": "ll", "asm": "s", "ptx": "ptx"}


def dump_stage(program: str, number: int, stage: str, text: str) -> None:
    """Write one stage as `dir/program/number-stage.suffix`, if a dump folder is set."""
    folder = knobs.get("dump")
    if folder:
        write_stage(Path(folder) / program, number, stage, text, "NOVA_DUMP")


def write_stage(folder: Path, number: int, stage: str, text: str, asked_by: str) -> None:
    """Write one stage as `folder/number-stage.suffix`; errors name `asked_by`."""
    suffix = _SUFFIXES.get(stage.partition("@")[0], "mlir")
    file = folder / f"{number}-{stage}.{suffix}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise DumpError(
            f"cannot write a stage to the folder of {asked_by}: {error.strerror}",
            where=str(file),
            hint=f"give {asked_by} a folder that can be written, or none",
        ) from None


def dump_stages(program: str, texts: Mapping[str, str]) -> None:
    """Write all stages of a compiled program."""
    if knobs.get("dump"):
        for number, (stage, text) in enumerate(texts.items()):
            dump_stage(program, number, stage, text)
