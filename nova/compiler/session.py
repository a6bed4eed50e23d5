"""One compile on its way: running stages with names, text and progress, and what comes out.

`driver.py` makes a `CompileSession` for the targets of each kind; the builders of host and device
code run
their stages on it and give back a `TargetCode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from nova.artifact.device_image import DeviceImage
from nova.artifact.write import Variant
from nova.compiler.stages import Recorder, run_stages
from nova.compiler.worker_pool import Workers
from nova.core.log import Progress
from nova.core.records import record
from nova.core.settings import Settings
from nova.ir.bindings import ir

_T = TypeVar("_T")


@record
class TargetCode:
    """The code for one target: that for a device is in images."""

    variant: Variant
    images: tuple[DeviceImage, ...] = ()


@record
class Program:
    """The code for all targets of a compile."""

    variants: tuple[Variant, ...]
    images: tuple[DeviceImage, ...] = ()


class Start(Protocol):
    """Begins some work, and gives a function that waits for what came of it."""

    def __call__(self, work: Callable[[], _T]) -> Callable[[], _T]: ...


@contextmanager
def beside(workers: int) -> Iterator[Start]:
    """Work that goes on in threads beside the caller; with one worker it is done at once."""

    with Workers(workers) as pool:
        yield pool.start


@record
class CompileSession:
    """Where stages are recorded: with `mark` those that targets share, if `several` are there.

    `start` is for work that needs no MLIR, and may go on while other targets are lowered. `host` is
    the architecture of the CPU that runs the file.
    """

    recorder: Recorder
    bar: Progress
    start: Start
    mark: str = ""
    several: bool = False
    host: str = ""

    def suffix(self, settings: Settings) -> str:
        """What is put behind the names of stages that are one target's own."""
        return f"@{settings.target}" if self.several else ""

    def advance(self, name: str) -> None:
        """Say what comes next."""
        self.bar.advance(name, len(self.recorder.compact) - 1)

    def run(
        self,
        module: ir.Module,
        settings: Settings,
        after: str,
        *,
        until: str | None = None,
        suffix: str = "",
        observe: Callable[[str, ir.Module], Any] | None = None,
        between: Callable[[], None] | None = None,
    ) -> None:
        """The stages behind `after`, as `run_stages` has them."""

        def see(stage: str, module: ir.Module) -> None:
            self.advance(stage + suffix)
            if observe is not None:
                observe(stage, module)

        run_stages(
            module,
            settings,
            self.recorder,
            after=after,
            until=until,
            suffix=suffix,
            observe=see,
            between=between,
        )
