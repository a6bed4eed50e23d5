"""nova-opt: run Nova's and MLIR's passes on MLIR text.

In: a file or stdin, and passes as `--pass-pipeline=...`, `--PASS[=options]` or `--PIPELINE`.
Out: the module on stdout or in `-o FILE`; messages with source line and caret on stderr, exit 1.
Called from the command line and, with a list of arguments, by the text tests. MLIR ends the process
on some wrong texts, so the passes run in a child (`nova/compiler/sandbox.py`).
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import re
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

from nova.compiler.sandbox import run_sandboxed
from nova.compiler.sandbox_child import report
from nova.errors import NovaError, PipelineError
from nova.ir.bindings import ir
from nova.ir.context import decode_source, in_file, make_context, parse_text
from nova.ir.custom_syntax import to_pretty
from nova.ir.diagnostics import Diagnostic
from nova.ir.resources import constants_of, take_constants, whole_text
from nova.passes.base import Pass, option_name, run_pipeline
from nova.passes.pipeline_text import parse_pipeline
from nova.passes.registry import PASS_MODULES, load_pass, named_pipelines
from nova.tools.mlir_source import SEPARATOR, describe_error, render_diagnostic, split_input
from nova.tools.start import add_version
from nova.tools.streams import open_closed_streams
from nova.tools.verify_diagnostics import check_diagnostics

# What other suffixes of a file promise, and the command that keeps it.
_WRITERS = {
    ".o": ("an object", "nova-translate --emit obj"),
    ".obj": ("an object", "nova-translate --emit obj"),
    ".s": ("assembly", "nova-translate --emit asm"),
    ".asm": ("assembly", "nova-translate --emit asm"),
    ".ll": ("LLVM IR", "nova-translate --emit ll"),
    ".bc": ("bitcode of LLVM", "nova-translate --emit ll"),
    ".ptx": ("code of a device", "nova-translate --target cuda:sm_80 --emit ptx"),
    ".cubin": ("code of a device", "nova-translate --target cuda:sm_80 --cubin"),
    ".so": ("a shared object", "nova-translate"),
    ".nova": ("a compiled program", "nova-translate"),
    ".mlirbc": ("bytecode", "mlir-opt --emit-bytecode of LLVM"),
}


def main(argv: list[str] | None = None) -> int:
    """Run the tool; the return value is the exit status."""
    open_closed_streams()
    args, extra = _make_parser().parse_known_args(argv)
    filename = "<stdin>" if args.file == "-" else args.file
    source = ""
    try:
        if args.list_passes:
            _list_passes()
            return 0
        _check_output(args.output)
        data = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
        source = data.decode("utf-8-sig", errors="replace")
        status, output = run_sandboxed(
            "nova.tools.nova_opt:run_passes",
            *(data, filename, vars(args), extra),
            where=filename,
            observe=_show_message,
        )
        if args.output == "-":
            sys.stdout.write(output)
            sys.stdout.flush()
        elif status == 0:
            Path(args.output).write_text(output)
        return int(status)
    except NovaError as error:
        shown_for = filename if error.where else "nova-opt"
        sys.stderr.write(render_diagnostic(describe_error(error), shown_for, source))
    except BrokenPipeError:
        # The reader left (`| head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"nova-opt: {error.filename or args.file}: {error.strerror}", file=sys.stderr)
    return 1


def _show_message(word: str, text: str) -> None:
    if word == "message":
        sys.stderr.write(text)


class _Messages(io.TextIOBase):
    """The stderr of the child: what goes there is shown at once."""

    def write(self, text: str) -> int:
        report("message", text)
        return len(text)


def run_passes(
    data: bytes, filename: str, words: dict[str, Any], extra: list[str]
) -> tuple[int, str]:
    """In the child: the exit status and what goes to the output."""
    args = argparse.Namespace(**words)
    with redirect_stderr(_Messages()), make_context() as context:
        text = decode_source(data, filename)
        context.allow_unregistered_dialects = args.allow_unregistered_dialect
        return _process_all(text, filename, args, _choose_passes(args, extra, context), context)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nova-opt",
        description="Run Nova's and MLIR's passes on MLIR text.",
        epilog="Any pass or named pipeline is also an option: --canonicalize, --PASS='key=value'.",
        allow_abbrev=False,
    )
    add_version(parser)
    add = parser.add_argument
    add("file", nargs="?", default="-", metavar="FILE", help="MLIR text; - is stdin (default)")
    add("-o", dest="output", default="-", metavar="OUT", help="where the result goes; - is stdout")
    add("--pass-pipeline", metavar="TEXT", help="such as builtin.module(PASS{key=value},...)")
    add("--list-passes", action="store_true", help="show Nova's passes and pipelines, and stop")
    add("--split-input-file", action="store_true", help=f"treat parts between {SEPARATOR} alone")
    add(
        "--verify-diagnostics", action="store_true", help="check // expected-error {{...}} comments"
    )
    add("--allow-unregistered-dialect", action="store_true", help="take ops of unknown dialects")
    add("--mlir-print-ir-after-all", action="store_true", help="show the IR after every pass")
    add("--mlir-print-ir-after", action="append", default=[], metavar="PASS")
    add("--mlir-timing", action="store_true", help="show the time of every pass")
    add("--mlir-print-debuginfo", action="store_true", help="print locations")
    add("--mlir-print-op-generic", action="store_true", help="print every op in its generic form")
    return parser


def _check_output(output: str) -> None:
    """Refuse to write text into a file whose name promises something else."""
    suffix = Path(output).suffix
    if suffix in _WRITERS:
        raise PipelineError(
            f"-o {output}: nova-opt writes MLIR text, and {suffix} is {_WRITERS[suffix][0]}",
            hint=f"{_WRITERS[suffix][1]} writes it",
        )


def _choose_passes(args: argparse.Namespace, extra: list[str], context: ir.Context) -> list[Pass]:
    for word in extra:
        if not word.startswith("--"):
            raise PipelineError(f"unexpected argument `{word}`", hint="see nova-opt --help")
    if args.pass_pipeline and extra:
        raise PipelineError(f"`{extra[0]}` cannot be combined with --pass-pipeline")
    words = [word.removeprefix("--").partition("=") for word in extra]
    from_flags = ",".join(f"{name}{{{value}}}" if eq else name for name, eq, value in words)
    passes = parse_pipeline(args.pass_pipeline or from_flags, context)
    for name in args.mlir_print_ir_after:
        if not any(name in _names(step) for step in passes):
            raise PipelineError(f"--mlir-print-ir-after: `{name}` is not in the pipeline")
    return passes


def _process_all(
    text: str, filename: str, args: argparse.Namespace, passes: list[Pass], context: ir.Context
) -> tuple[int, str]:
    results: list[str] = []
    failed = False
    timing: dict[str, float] = {}
    for part in split_input(text) if args.split_input_file else [text]:
        diagnostics: list[Diagnostic] = []
        result = _process(part, filename, args, passes, context, diagnostics, timing)
        if result is not None:
            results.append(result)
        if args.verify_diagnostics:
            diagnostics = check_diagnostics(part, filename, diagnostics)
        failed |= bool(diagnostics) if args.verify_diagnostics else result is None
        for diagnostic in diagnostics:
            sys.stderr.write(render_diagnostic(diagnostic, filename, text))
    if args.mlir_timing:
        _print_timing(timing)
    return 1 if failed else 0, f"{SEPARATOR}\n".join(results)


def _process(
    text: str,
    filename: str,
    args: argparse.Namespace,
    passes: list[Pass],
    context: ir.Context,
    diagnostics: list[Diagnostic],
    timing: dict[str, float],
) -> str | None:
    """The module after the passes, as text; None on failure. `diagnostics` gets MLIR's."""

    def print_module(module: ir.Module) -> str:
        text = str(
            module.operation.get_asm(
                enable_debug_info=args.mlir_print_debuginfo,
                print_generic_op_form=args.mlir_print_op_generic,
            )
        )
        printed = text if args.mlir_print_op_generic else to_pretty(text)
        return whole_text(printed, module.context)

    def show(step: Pass, module: ir.Module) -> None:
        if args.mlir_print_ir_after_all or _names(step) & set(args.mlir_print_ir_after):
            dump = f"// -----// IR Dump After {step} //----- //\n{print_module(module)}\n"
            sys.stderr.write(dump)
        number = next(order, len(passes))
        report("begin", str(passes[number]) if number < len(passes) else "print")

    order = iter(range(1, len(passes) + 1))
    report("begin", "parse")
    try:
        module = parse_text(
            take_constants(text, constants_of(context)), filename, context, diagnostics
        )
        report("begin", str(passes[0]) if passes else "print")
        run_pipeline(
            module,
            passes,
            after_each=show,
            timing=timing,
            on_diagnostic=lambda diagnostic: diagnostics.append(in_file(diagnostic, filename)),
        )
    except ir.MLIRError as error:
        failure = Diagnostic("error", f"the text cannot be read: {error}")
    except NovaError as error:
        failure = in_file(describe_error(error), filename)
    else:
        return print_module(module)
    # An error that MLIR reported is in `diagnostics` already, with its notes.
    if not any(diagnostic.severity == "error" for diagnostic in diagnostics):
        diagnostics.append(failure)
    return None


def _names(step: Pass) -> set[str]:
    """The pass names that a step's text mentions."""
    return set(re.findall(r"[\w.-]+", re.sub(r"\{[^}]*\}", "", str(step))))


def _print_timing(timing: dict[str, float]) -> None:
    total = sum(timing.values()) or 1.0
    print("  seconds   share  pass", file=sys.stderr)
    for name, seconds in timing.items():
        print(f"{seconds:9.4f}  {seconds / total:6.1%}  {name}", file=sys.stderr)
    print(f"{sum(timing.values()):9.4f}  {1:6.1%}  total", file=sys.stderr)


def _list_passes() -> None:
    print("passes:")
    for name in PASS_MODULES:
        step = load_pass(name)
        options = [option_name(field.name) for field in dataclasses.fields(step)]  # type: ignore
        print(f"  --{name}{'{' + ' '.join(options) + '}' if options else ''}")
        print(f"      {step.summary()}")
    print("pipelines:")
    for name, make in named_pipelines().items():
        print(f"  --{name}")
        print(f"      {(make.__doc__ or '').strip().split(chr(10))[0]}")
    print("MLIR's own passes are available by their names too.")


if __name__ == "__main__":
    sys.exit(main())
