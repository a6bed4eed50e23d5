"""nova-translate: MLIR or an ONNX model to a `.nova` file, for one or several targets.

In: a file or stdin with the nova dialect, StableHLO, TOSA or linalg, as text or bytecode, or a file
whose name ends in `.onnx`. Out: the file, or the stage that `--emit` names; messages with source
line and caret on stderr, exit 1. The work is done by `nova.api.translate`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from nova import knobs
from nova.api.translate import EMITS, STARTS, Translation, translate
from nova.api.translate.request import KERNELS_ONLY
from nova.artifact.elf.runtime_object import why_no_runtime
from nova.artifact.sign import read_private_key
from nova.compiler.dump import write_stage
from nova.compiler.recorder import Recorder
from nova.core.location import user_location
from nova.core.targets import host_arch, parse_target
from nova.errors import ArtifactError, NovaError, PipelineError
from nova.frontends.source import Source, read_source
from nova.tools.mlir_source import describe_error, render_diagnostic
from nova.tools.sizes import add_shape_argument, named_shapes
from nova.tools.start import add_version
from nova.tools.streams import open_closed_streams

_ONNX = ".onnx"
_PROGRAMS = ("obj", "so")
_BINARIES = ("cubin", *_PROGRAMS)


def main(argv: list[str] | None = None) -> int:
    """Run the tool; the return value is the exit status."""
    open_closed_streams()
    args = _make_parser().parse_args(argv)
    source: Source | None = None
    try:
        is_onnx = args.file.endswith(_ONNX)
        source = _import_onnx(args) if is_onnx else _read(args.file)
        _check_output(args)
        result = _translate(source, args)
        if result.emit in _PROGRAMS and args.start_from not in KERNELS_ONLY:
            _print_note(args.target)
        _write(result if args.sign is None else result.sign(args.sign), args.output)
    except NovaError as caught:
        error = _without_line(caught)
        shown_for = source.name if source is not None and error.where else "nova-translate"
        text = "" if source is None or source.is_bytecode else _show(source)
        sys.stderr.write(render_diagnostic(describe_error(error, shown_for), shown_for, text))
        return 1
    except BrokenPipeError:
        # The reader left (`| head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"nova-translate: {error.filename or args.output}: {error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("nova-translate: interrupted", file=sys.stderr)
        return 130
    return 0


def _without_line(error: NovaError) -> NovaError:
    """The error without the line that called the tool: who gave a wrong option has no line."""
    if error.where != str(user_location()):
        return error
    bare = type(error)(error.what, hint=error.hint)
    for note in getattr(error, "__notes__", ()):
        bare.add_note(note)
    return bare


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nova-translate",
        description="Compile a program in MLIR (nova, StableHLO, TOSA or linalg) or an ONNX model "
        "to a .nova file.",
        allow_abbrev=False,
    )
    add_version(parser)
    add = parser.add_argument
    add("file", metavar="IN", help="MLIR text or bytecode, or model.onnx; - is stdin")
    add(
        "-o", dest="output", default="-", metavar="OUT", help="where it goes; - is stdout (default)"
    )
    add(
        "--target",
        action="append",
        metavar="T",
        help="what to compile for; may be given several times (default: cpu, this machine)",
    )
    add("--entry", default="main", metavar="NAME", help="the function to start from (main)")
    add_shape_argument(parser)
    add(
        "--emit",
        choices=EMITS,
        metavar="STAGE",
        help=f"stop at a stage: {', '.join(EMITS)} (so, the default, is the .nova file)",
    )
    add(
        "--start-from",
        choices=STARTS,
        metavar="STAGE",
        help="the input is the text of this stage, as --emit or --dump-stages wrote it",
    )
    add(
        "--weights",
        metavar="FILE",
        help="a safetensors file; the arguments it has values of become params of the program",
    )
    add(
        "--cubin",
        action="store_const",
        const=True,
        help="assemble code for devices with ptxas, in addition to its PTX (docs/devices.md)",
    )
    add("--sign", metavar="KEY", help="sign the file with this private key (docs/deploying.md)")
    add("--dump-stages", metavar="DIR", help="write the text of every stage into this folder")
    add("--timing", action="store_true", help="show the time and size of every stage")
    add(
        "--fast-math",
        action="store_const",
        const=True,
        help="let float arithmetic be rearranged (docs/fast-math.md)",
    )
    add(
        "--tune",
        type=float,
        metavar="SECONDS",
        help="try schedules on this machine for so long (docs/tuning.md)",
    )
    add(
        "--launch",
        choices=knobs.LAUNCHES,
        help="how GPUs run the kernels of the program (docs/persistent-kernels.md)",
    )
    return parser


def _import_onnx(args: argparse.Namespace) -> Source:
    """The text of an ONNX model in the nova dialect."""
    from nova.api.from_onnx import from_onnx  # only for ONNX models

    for option in ("weights", "start_from"):
        if getattr(args, option) is not None:
            raise PipelineError(f"--{option.replace('_', '-')} is not for ONNX models")
    shapes = args.shape or []
    if any(not sizes.name for sizes in shapes):
        raise PipelineError("--shape of an ONNX model has a name, such as --shape x=8x128")
    source = from_onnx(args.file, shapes=named_shapes(shapes)).source()
    args.shape, args.start_from = None, "nova"
    return source


def _read(file: str) -> Source:
    if file == "-":
        return Source("<stdin>", sys.stdin.buffer.read())
    return read_source(Path(file))


def _show(source: Source) -> str:
    """The text that messages show lines of; it may be binary."""
    return source.data.decode("utf-8-sig", errors="replace")


def _is_one_file(output: str, file: str) -> bool:
    """Whether two paths lead to one regular file."""
    try:
        return Path(output).is_file() and Path(output).samefile(file)
    except OSError:
        return False  # opening the path reports the error


def _check_output(args: argparse.Namespace) -> None:
    if args.sign is not None:
        if args.emit not in (None, "so"):
            raise PipelineError(f"only a .nova file is signed, and --emit {args.emit} is given")
        read_private_key(args.sign)  # an invalid key is reported before the work
    if args.output != "-" and args.file != "-" and _is_one_file(args.output, args.file):
        raise PipelineError(
            f"the output {args.output} is the input, which would be lost",
            hint="name another file with -o OUT",
        )
    if args.output == "-" and (args.emit or "so") in _BINARIES and sys.stdout.isatty():
        raise PipelineError("a binary file does not go to a terminal", hint="name it with -o OUT")


def _translate(source: Source, args: argparse.Namespace) -> Translation:
    """The translation; timing and dumps of its stages are written also when one of them fails."""
    recorder = Recorder()
    try:
        result = translate(
            source,
            targets=args.target or ("cpu",),
            entry=args.entry,
            args=args.shape,
            weights=args.weights,
            start_from=args.start_from,
            emit=args.emit,
            fast_math=args.fast_math,
            tune=args.tune,
            cubin=args.cubin,
            recorder=recorder,
            launch=args.launch,
        )
    except NovaError as error:
        try:
            _report_stages(recorder, args)
        except (NovaError, OSError) as second:
            error.add_note(f"the stages before it could not be written: {second}")
        raise
    _report_stages(recorder, args)
    return result


def _report_stages(recorder: Recorder, args: argparse.Namespace) -> None:
    """Write the output of `--dump-stages` and `--timing` for the stages that were reached."""
    if args.dump_stages:
        for number, (stage, text) in enumerate(recorder.texts.items()):
            write_stage(Path(args.dump_stages), number, stage, text, "--dump-stages")
    if args.timing:
        _print_timing(recorder)


def _write(result: Translation, output: str) -> None:
    if output != "-":
        try:
            result.save(output)
        except ArtifactError as error:  # its location is not one in the source
            raise ArtifactError(f"{output}: {error.what}") from error
        return
    sys.stdout.flush()
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(result.data)
        sys.stdout.buffer.flush()
    else:  # a test's stream of text
        sys.stdout.write(result.data.decode())


def _print_note(targets: list[str] | None) -> None:
    """Say if the file cannot run without Python: nothing else would report it."""
    reason = why_no_runtime(host_arch(map(parse_target, targets or ["cpu"])))
    if reason:
        print(f"nova-translate: note: {reason}", file=sys.stderr)


def _print_timing(recorder: Recorder) -> None:
    total = sum(row["seconds"] for row in recorder.metrics.values())
    print("  seconds       bytes  stage", file=sys.stderr)
    for stage, row in recorder.metrics.items():
        print(f"{row['seconds']:9.4f}  {int(row['bytes']):10}  {stage}", file=sys.stderr)
    print(f"{total:9.4f}  {'':10}  total", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
