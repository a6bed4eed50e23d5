"""nova trace: run a .nova file, and show what every core, or the device, did and when.

In: a file, arrays for its arguments as `nova run` takes them. Out: a summary on stdout; with `-o` a
timeline for Perfetto, with `--html` a page for the browser. With `--sim` the tasks, with the times
that they took here, are replayed on another number of cores; a device has no such tasks. With
`--simulate` nothing is run: the launches of a program for a device are predicted on a device model.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nova import knobs
from nova.api.load import load
from nova.errors import AttributeValueError, SignatureError
from nova.runtime.devices import check_device_name
from nova.tools.arguments import add_array_arguments, gather_arrays, parse_count
from nova.tools.report import print_json, printable
from nova.tracing.collect import Trace, check_folder, save_runs
from nova.tracing.devices.models import DEVICE_MODELS, find_model
from nova.tracing.run import Run, replay
from nova.tracing.summary import summarize


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `nova trace`."""
    add = parser.add_argument
    add("file", metavar="FILE", help="a .nova file")
    add_array_arguments(parser)
    add("--device", metavar="NAME", help="cpu, cuda, cuda:1, ... or sim (where the file has code)")
    add("-o", dest="out", metavar="OUT.json", help="a timeline for https://ui.perfetto.dev")
    add("--html", metavar="OUT.html", help="a page with the timeline, for any browser")
    add("--threads", type=_positive, metavar="N", help="workers (default: NOVA_THREADS)")
    add("--sim", type=_positive, metavar="N", help="replay the tasks on N simulated cores")
    add(
        "--simulate",
        action="store_true",
        help="run nothing: predict the launches on the --device (h200, h100 or a100)",
    )
    add("--repeat", type=_positive, default=1, metavar="N", help="runs to trace (1)")
    add("--warmup", type=parse_count, default=1, metavar="N", help="runs before them (1)")
    add("--json", action="store_true", help="answer as JSON")


def run(args: argparse.Namespace) -> int:
    """Trace the file."""
    targets = [Path(path) for path in (args.out, args.html) if path is not None]
    for path in targets:
        check_folder(path)
    if args.simulate:
        return _simulate(args, targets)
    collected = _trace(args)
    runs = collected.runs
    if args.sim is not None:
        runs = tuple(replay(run, args.sim) for run in runs if isinstance(run, Run))
        summary = summarize(runs, collected.peaks)
    else:
        summary = collected.summary()
    for path in targets:
        save_runs(path, runs, summary, as_page=path == Path(args.html or ""))
    if args.json:
        rates = {"flop_rate": summary.flop_rate, "byte_rate": summary.byte_rate}
        written = [str(path) for path in targets]
        print_json({"file": args.file, **asdict(summary), **rates, "written": written})
        return 0
    print(f"{printable(args.file)}: ", end="")
    # Names of kernels come from the file.
    print("\n".join(map(printable, str(summary).split("\n"))))
    for path in targets:
        print(f"written: {printable(str(path))}")
    return 0


def _simulate(args: argparse.Namespace, targets: list[Path]) -> int:
    """Predict the time of the file on a device that need not be here."""
    if args.device is None:
        raise AttributeValueError(
            "--simulate predicts the time on a device model, and no --device is given",
            hint=f"--device is one of {', '.join(DEVICE_MODELS)}",
        )
    find_model(args.device)  # a mistake of the command line, at no line of code
    _refuse_cores(args)
    prediction = load(args.file, device="sim", weights=args.weights).simulate(device=args.device)
    summary = summarize((prediction.run,), None)
    for path in targets:
        save_runs(path, (prediction.run,), summary, as_page=path == Path(args.html or ""))
    if args.json:
        launches = [
            {"kernel": item.kernel.name, "start": item.start, "end": item.end, "bound": item.bound}
            for item in prediction.launches
        ]
        times = {"makespan": prediction.makespan, "device_ns": prediction.device_ns}
        print_json({"file": args.file, "device": args.device, **times, "launches": launches})
        return 0
    print("\n".join(map(printable, f"{args.file}: {prediction}".split("\n"))))
    for path in targets:
        print(f"written: {printable(str(path))}")
    return 0


def _trace(args: argparse.Namespace) -> Trace:
    threads: Any = nullcontext()
    if args.threads is not None:
        threads = knobs.override(threads=args.threads)
    with threads:
        check_device_name(args.device)  # a mistake of the command line, at no line of code
        program = load(args.file, device=args.device, weights=args.weights)
        if program.is_on_device:
            _refuse_cores(args)
        arrays = gather_arrays(program, args)
        try:
            for _ in range(args.warmup):
                program(*arrays)
            with Trace() as collected:
                for _ in range(args.repeat):
                    program(*arrays)
        except SignatureError as error:
            raise type(error)(error.what, where=args.file, hint=error.hint) from None
        return collected


def _refuse_cores(args: argparse.Namespace) -> None:
    """Options about cores of this machine mean nothing for a program on a device."""
    for option, effect in (
        ("sim", "replays tasks on cores"),
        ("threads", "is how many cores work"),
    ):
        if getattr(args, option) is not None:
            raise AttributeValueError(
                f"--{option} {effect}, and the program runs on a device",
                where=args.file,
                hint=f"leave --{option} out, or --device cpu where the file has code for it",
            )


def _positive(text: str) -> int:
    if parse_count(text) == 0:
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)
