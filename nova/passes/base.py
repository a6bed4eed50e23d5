"""The pass base class, and the pass manager that runs a list of passes.

Input: a module and a list of `Pass` objects (made by hand, by `nova/passes/pipelines.py` or by the
pipeline parser). Output: the same module, changed in place, or a `PassError` with the pass, the
location and MLIR's message. Called by the compile stages and by `nova-opt`.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from nova import knobs
from nova.core.records import record
from nova.errors import NovaError, PassError, PipelineError
from nova.ir.bindings import ir, passmanager
from nova.ir.control_flow.functions import region_modules
from nova.ir.diagnostics import Diagnostic, capture_diagnostics
from nova.ir.dialect import DIALECT
from nova.ir.linalg.attribute_cache import attribute_cache
from nova.ir.walk import contains_dialect
from nova.passes.mlir_threads import mlir_threads

# The pass managers of each context: the first run of one collects the patterns of all ops.
_MANAGERS: WeakKeyDictionary[ir.Context, dict[UpstreamPass, passmanager.PassManager]]
_MANAGERS = WeakKeyDictionary()


_MANY_OPS = 8
"""Ops in a module for which threads of MLIR are started."""


class Pass(ABC):
    """A transformation of a whole module.

    A subclass is a record: `name` is its kebab-case name and the name of its file, the fields are
    its options (each with a default), the docstring is its contract. `run` mutates the module, and
    raises a `NovaError` for input that it does not handle.
    """

    name: ClassVar[str]
    reads_regions: ClassVar[bool] = False
    """Whether the pass reads the modules of regions inside the module.

    The pass manager runs every pass over those first; other passes do not see them
    (nova/ir/control_flow/functions.py).
    """
    only_with: ClassVar[tuple[str, ...]] = ()
    """Texts of which the source of a program has one if the pass changes the program; () is any.

    A pass for rare ops names them here, and those that earlier passes expand to them.
    """

    @abstractmethod
    def run(self, module: ir.Module) -> None:
        """Change `module` in place."""

    def steps(self, module: ir.Module) -> Iterator[None]:
        """Run, and yield whenever a part of the module is ready for the passes after this one."""
        self.run(module)
        return iter(())

    def concerns(self, text: str) -> bool:
        """Whether the pass may change a module with this text.

        To search a text is much faster than to walk the ops. A caller that has the text may skip a
        pass that it does not concern; to run it anyway changes nothing.
        """
        return True

    def concerns_source(self, text: str) -> bool:
        """Like `concerns`, with the text of the program that the module is lowered from."""
        return not self.only_with or any(sign in text for sign in self.only_with)

    def __str__(self) -> str:
        """The pass as pipeline text, with the options that differ from their defaults."""
        set_options = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value != _default(field):
                set_options.append(f"{option_name(field.name)}={format_option(value)}")
        return f"{self.name}{{{' '.join(set_options)}}}" if set_options else self.name

    @classmethod
    def summary(cls) -> str:
        """The first sentence of the contract, for `--list-passes`."""
        text = inspect.cleandoc(cls.__doc__ or "")
        return text.split("\n\n")[0].replace("\n", " ")


@record
class UpstreamPass(Pass):
    """One or more upstream passes, as the text inside of `builtin.module(...)`.

    A pass with `signs` does nothing to a module whose text contains none of them. A `parallel` one
    processes the ops inside the module in several threads of MLIR, unless they contain ops of the
    nova dialect, which have code in Python (nova/passes/mlir_threads.py).
    """

    name: ClassVar[str] = "upstream"
    text: str
    verify: bool = True
    signs: tuple[str, ...] = ()
    parallel: bool = False

    def concerns(self, text: str) -> bool:
        return not self.signs or any(sign in text for sign in self.signs)

    def concerns_source(self, text: str) -> bool:
        return self.concerns(text)

    def __str__(self) -> str:
        return self.text

    def parse(self, context: ir.Context) -> passmanager.PassManager:
        """Build the pass manager; text that MLIR rejects is a `PipelineError`."""
        try:
            manager = passmanager.PassManager.parse(f"builtin.module({self.text})", context)
        except ValueError as error:
            message = str(error).removeprefix("MLIR Textual PassPipeline Parser:").strip()
            raise PipelineError(
                f"MLIR does not take the pipeline `{self.text}`: {message}",
                hint="nova-opt --list-passes shows Nova's passes; other names are MLIR's",
            ) from None
        manager.enable_verifier(self.verify)
        return manager

    def run(self, module: ir.Module) -> None:
        managers = _MANAGERS.setdefault(module.context, {})
        manager = managers.get(self)
        if manager is None:
            manager = managers[self] = self.parse(module.context)
        is_parallel = self.parallel and knobs.get("threads") > 1 and _has_independent_ops(module)
        with mlir_threads(module.context) if is_parallel else nullcontext():
            manager.run(module.operation)


def _has_independent_ops(module: ir.Module) -> bool:
    """Whether several threads of MLIR may process the ops inside a module, and it has many."""
    is_large = len(module.body.operations) >= _MANY_OPS
    return is_large and not contains_dialect(module, DIALECT)


def option_name(field_name: str) -> str:
    """The name of a dataclass field in pipeline text."""
    return field_name.replace("_", "-")


def format_option(value: Any) -> str:
    """The value of an option in pipeline text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ",".join(format_option(item) for item in value)
    return str(value)


def run_pipeline(
    module: ir.Module,
    passes: Iterable[Pass],
    *,
    after_each: Callable[[Pass, ir.Module], None] | None = None,
    timing: dict[str, float] | None = None,
    verify: bool = True,
    on_diagnostic: Callable[[Diagnostic], None] | None = None,
    between: Callable[[], None] | None = None,
) -> None:
    """Run `passes` over `module` in order, in place.

    `after_each` gets the module after every pass. `timing` accumulates the seconds per pass text.
    `on_diagnostic` gets everything MLIR emitted, also warnings of passes that succeed. With
    `verify`, an invalid module is reported as an error of the pass that left it. `between` is
    called at every stop of a pass (`Pass.steps`). Each `UpstreamPass` has its own PassManager,
    which tells which one failed.
    """
    with attribute_cache():
        for step in passes:
            started = time.perf_counter()
            with capture_diagnostics(module.context) as diagnostics:
                try:
                    _run_one(step, module, diagnostics, verify, between)
                finally:
                    if on_diagnostic:
                        for diagnostic in diagnostics:
                            on_diagnostic(diagnostic)
            if timing is not None:
                timing[str(step)] = timing.get(str(step), 0.0) + time.perf_counter() - started
            if after_each:
                after_each(step, module)


def run_verified_once(
    module: ir.Module, passes: Sequence[Pass], between: Callable[[], None] | None = None
) -> None:
    """Run `passes` over `module` and verify the module after the last of them.

    To verify after each takes longer than the passes themselves. `run_pipeline`, which `nova-opt`
    uses, does that, and names the pass at fault.
    """
    run_pipeline(module, passes, verify=False, between=between)
    names = ", ".join(str(step) for step in passes)
    with capture_diagnostics(module.context) as diagnostics:
        _verify(module, diagnostics, f"one of the passes `{names}`")


def _run_one(
    step: Pass,
    module: ir.Module,
    diagnostics: list[Diagnostic],
    verify: bool,
    between: Callable[[], None] | None,
) -> None:
    if isinstance(step, UpstreamPass) and not verify:
        step = dataclasses.replace(step, verify=False)
    regions = region_modules(module)
    for region in regions:
        _run_one(step, region, diagnostics, verify, between)
    if regions and not step.reads_regions:
        with without_regions(module, regions):
            _run_alone(step, module, diagnostics, verify, between)
    else:
        _run_alone(step, module, diagnostics, verify, between)


@contextmanager
def without_regions(module: ir.Module, regions: Sequence[Any]) -> Iterator[None]:
    """Inside, the modules of regions are not in the module."""
    for region in regions:
        region.operation.detach_from_parent()
    try:
        yield
    finally:
        at_begin = ir.InsertionPoint.at_block_begin(module.body)
        for region in regions:
            at_begin.insert(region)


def _run_alone(
    step: Pass,
    module: ir.Module,
    diagnostics: list[Diagnostic],
    verify: bool,
    between: Callable[[], None] | None,
) -> None:
    try:
        # Without a context and a location in scope every builder call in a pass would need both.
        with module.context, module.operation.location:
            for _ in step.steps(module):
                if between is not None:
                    between()
    except NovaError as error:
        error.add_note(f"in pass `{step}`")
        raise
    except ir.MLIRError as error:
        raise _pass_error(f"pass `{step}` failed", diagnostics, str(error)) from None
    except Exception as error:
        # Unsupported IR, or a bug in the pass: `error` says which one.
        raise PassError(
            f"pass `{step}` does not handle this module: {type(error).__name__}: {error}",
            hint="nova-opt --list-passes describes the input of each pass",
        ) from error
    if any(diagnostic.severity == "error" for diagnostic in diagnostics):
        raise _pass_error(f"pass `{step}` reported an error", diagnostics)
    if verify and not isinstance(step, UpstreamPass):
        _verify(module, diagnostics, f"pass `{step}`")


def _verify(module: ir.Module, diagnostics: list[Diagnostic], origin: str) -> None:
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise _pass_error(f"{origin} left invalid IR", diagnostics, str(error)) from None


def _pass_error(summary: str, diagnostics: list[Diagnostic], otherwise: str = "") -> PassError:
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    message = "; ".join(diagnostic.message for diagnostic in errors) or otherwise
    where = next((diagnostic.where for diagnostic in errors if diagnostic.where), None)
    return PassError(f"{summary}: {message}", where=where)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
