"""A compile session: runs stages with names, texts and progress, and holds the results.

`driver.py` creates a `CompileSession` for the targets of each kind. The backends for host and
device code run their stages on it and return a `TargetCode`.
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
    """The code for one target: device code is in images."""

    variant: Variant
    images: tuple[DeviceImage, ...] = ()


@record
class Program:
    """The code for all targets of a compile."""

    variants: tuple[Variant, ...]
    images: tuple[DeviceImage, ...] = ()


class Start(Protocol):
    """Starts work, and returns a function that waits for its result."""

    def __call__(self, work: Callable[[], _T]) -> Callable[[], _T]: ...


@contextmanager
def beside(workers: int) -> Iterator[Start]:
    """Work that runs concurrently with the caller in threads; with one worker it runs at once."""

    with Workers(workers) as pool:
        yield pool.start


@record
class CompileSession:
    """Records stages. `mark` is the suffix of stages that targets share, if there are `several`.

    `start` is for work that does not need MLIR and may run while other targets are lowered. `host`
    is the architecture of the CPU that runs the file.
    """

    recorder: Recorder
    bar: Progress
    start: Start
    mark: str = ""
    several: bool = False
    host: str = ""

    def suffix(self, settings: Settings) -> str:
        """The suffix of the names of stages that are specific to one target."""
        return f"@{settings.target}" if self.several else ""

    def advance(self, name: str) -> None:
        """Report the next stage."""
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
        """The stages after `after`, run by `run_stages`."""

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
