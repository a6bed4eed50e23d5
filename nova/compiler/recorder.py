"""The record of a compile: text, seconds and size of every stage.

The loop of `stages.py` fills a `Recorder`; `Compiled.stages`, `Compiled.metrics` and
`nova-translate --timing` read it. A compile in a child process reports to the caller's recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nova import knobs
from nova.artifact.texts import TextPacker
from nova.compiler.dump import dump_stage
from nova.compiler.sandbox_child import report
from nova.core.constants import Constants, StageTexts
from nova.core.log import Progress, log
from nova.ir.bindings import ir
from nova.ir.context import print_op
from nova.ir.resources import constants_of


@dataclass
class Recorder:
    """The record of a compile.

    `name` is the folder of the program under `NOVA_DUMP` that gets the texts. They are kept
    `compact`, with the values of large constants in a table.
    """

    name: str = "program"
    compact: dict[str, str] = field(default_factory=dict)
    constants: Constants = field(default_factory=Constants)
    seconds: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    packer: TextPacker | None = None

    def begin(self, stage: str) -> None:
        """Report the next stage."""

    def record(self, stage: str, text: str, seconds: float) -> None:
        """Keep the text of a stage, which may be compact."""
        self.compact[stage] = text
        if knobs.get("dump"):
            dump_stage(self.name, len(self.compact) - 1, stage, self.texts[stage])
        self.record_size(stage, len(text), seconds)

    def record_module(self, stage: str, module: ir.Module, seconds: float) -> None:
        """Keep a stage whose result is a module."""
        self.constants.update(constants_of(module.context))
        self.record(stage, module_text(module), seconds)

    def pack_texts(self) -> None:
        """Pack the texts for a file in advance: a caller that would only wait calls this."""
        if not any(self.constants):
            self.packer = self.packer or TextPacker()
            self._pack_others(self.packer)

    def packed_texts(self) -> bytes | None:
        """The texts as a file has them, if they were packed in advance and have no constants."""
        packer, self.packer = self.packer, None
        if packer is None or any(self.constants):
            return None
        if packer.names != list(self.compact)[: len(packer.names)]:
            return None
        self._pack_others(packer)
        return packer.finish()

    def _pack_others(self, packer: TextPacker) -> None:
        """Pack the texts after those that are packed already."""
        for stage in list(self.compact)[len(packer.names) :]:
            packer.add_plain(stage, self.compact[stage])

    def add_constants(self, stage: str, data: Mapping[str, bytes]) -> None:
        """Keep the values of large constants by digest; texts from `stage` on refer to them."""
        for digest, values in data.items():
            self.constants.add(values, digest)

    def record_size(self, stage: str, size: int, seconds: float) -> None:
        """Keep time and size of a stage; the results of the last stages are bytes."""
        self.seconds[stage] = seconds
        self.sizes[stage] = size
        log("compile", f"{stage}: {seconds * 1e3:.1f} ms, {size} bytes")

    @property
    def texts(self) -> StageTexts:
        """The full texts, in the order of the compile."""
        return StageTexts(self.compact, self.constants)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        return {s: {"seconds": t, "bytes": self.sizes[s]} for s, t in self.seconds.items()}


class ReportingRecorder(Recorder):
    """The recorder of a compile in a child process: it reports to the recorder of the caller."""

    def __init__(self) -> None:
        super().__init__()
        self._reported: set[str] = set()

    def begin(self, stage: str) -> None:
        report("begin", stage)

    def record(self, stage: str, text: str, seconds: float) -> None:
        new = [digest for digest in self.constants if digest not in self._reported]
        if new:
            self._reported.update(new)
            report("add_constants", stage, {d: bytes(self.constants[d]) for d in new})
        self.compact[stage] = text
        report("record", stage, text, seconds)

    def record_size(self, stage: str, size: int, seconds: float) -> None:
        report("record_size", stage, size, seconds)

    def pack_texts(self) -> None:
        """The caller packs them."""


def apply_reports(recorder: Recorder, bar: Progress, *, pack: bool = True) -> Callable[..., None]:
    """The function that applies each report of a `ReportingRecorder` in a child to `recorder`.

    With `pack`, texts without constants are packed for the file while the child goes on.
    """
    recorder.packer = packer = TextPacker() if pack else None

    def apply(method: str, stage: str, *values: Any) -> None:
        bar.advance(stage)
        getattr(recorder, method)(stage, *values)
        if packer is not None and method == "record" and not any(recorder.constants):
            packer.add_plain(stage, recorder.compact[stage])

    return apply


def module_text(module: ir.Module) -> str:
    """The compact text of a module that the last pass has verified; printing would verify again.

    The values of large constants are in the recorder's table (`nova/core/constants.py`).
    """
    return print_op(module.operation)
