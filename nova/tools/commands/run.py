"""nova run: run a .nova file on arrays from .npy files, or on random ones.

In: a file, arrays for its arguments; params that have values in the file need none. Out: its
results as .npy files or as a summary, and with `--repeat` how long a run takes. Arguments that do
not fit are refused by the executor.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nova.api.load import load
from nova.errors import OutputError, SignatureError
from nova.runtime.devices import check_device_name
from nova.tools.arguments import add_array_arguments, gather_arrays, parse_count
from nova.tools.describe import describe_signature, describe_variants
from nova.tools.npy import file_names, summarize_array, write_npy
from nova.tools.report import Table, format_seconds, print_json, print_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `nova run`."""
    add = parser.add_argument
    add("file", metavar="FILE", help="a .nova file")
    add_array_arguments(parser)
    add("--device", metavar="NAME", help="cpu, cuda, cuda:1, ... or sim (where the file has code)")
    add("--out", metavar="PATH", help="a .npy file for one result, or a folder for all")
    add(
        "--repeat", type=parse_count, default=0, metavar="N", help="run N more times, and time them"
    )
    add("--warmup", type=parse_count, default=1, metavar="N", help="runs before the timed ones (1)")
    add("--json", action="store_true", help="answer as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the file."""
    check_device_name(args.device)  # a mistake of the command line, at no line of code
    program = load(args.file, device=args.device, weights=args.weights)
    signature = describe_signature(program.artifact)
    arguments = [tensor for tensor in signature if tensor["role"] != "output"]
    outputs = [tensor for tensor in signature if tensor["role"] == "output"]
    arrays = gather_arrays(program, args)
    targets = _plan_files(args.out, arguments, outputs)
    try:
        results = program(*arrays)
        results = _on_host(results)
    except SignatureError as error:
        raise type(error)(error.what, where=args.file, hint=error.hint) from None
    named_results = _name_results(results, arrays, arguments, outputs)
    for path, (_, array) in zip(targets, named_results, strict=bool(targets)):
        write_npy(path, array)
    answer: dict[str, Any] = {
        "file": args.file,
        "target": program.target,
        "why": program.why,
        "results": [
            {"name": n, "dtype": str(a.dtype), "shape": list(a.shape), **summarize_array(a)}
            for n, a in named_results
        ],
        "written": [str(path) for path in targets],
    }
    if args.repeat:
        chosen = [v["target"] for v in describe_variants(program.artifact)].index(program.target)
        times = _measure(lambda: program(*arrays), args.warmup, args.repeat)
        answer["timing"] = _summarize_times(times, describe_variants(program.artifact)[chosen])
    if args.json:
        print_json(answer)
    else:
        print_tables(_make_tables(answer))
    return 0


def _on_host(results: Any) -> Any:
    """Results of a device, in plain memory."""
    if isinstance(results, tuple):
        return tuple(np.asarray(array) for array in results)
    return np.asarray(results)


def _plan_files(
    out: str | None, arguments: list[dict[str, Any]], outputs: list[dict[str, Any]]
) -> list[Path]:
    """Where each result goes, or nothing; updated params are results too."""
    names = _result_names(arguments, outputs)
    if out is None:
        return []
    path = Path(out)
    if path.suffix == ".npy" and not path.is_dir():
        if len(names) != 1:
            raise OutputError(
                f"{len(names)} results do not fit into one file: {', '.join(names)}",
                where=out,
                hint="give --out the path of a folder",
            )
        return [path]
    path.mkdir(parents=True, exist_ok=True)
    return [path / file for file in file_names(names)]


def _result_names(arguments: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> list[str]:
    updated = _updated(arguments, outputs)
    return [tensor["name"] for tensor in outputs] + [arguments[i]["name"] for i in updated]


def _updated(arguments: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> list[int]:
    """The arguments that a run changes, but for those that it returns as well."""
    returned = {tensor["alias"] for tensor in outputs}
    return [i for i, tensor in enumerate(arguments) if tensor["donated"] and i not in returned]


def _name_results(
    results: Any,
    arrays: list[np.ndarray],
    arguments: list[dict[str, Any]],
    outputs: list[dict[str, Any]],
) -> list[tuple[str, np.ndarray]]:
    """Results and updated params as copies: runs that are timed change the params again."""
    returned = results if isinstance(results, tuple) else () if results is None else (results,)
    updated = [arrays[i] for i in _updated(arguments, outputs)]
    names = _result_names(arguments, outputs)
    return [(n, np.array(a)) for n, a in zip(names, [*returned, *updated], strict=True)]


def _measure(run_once: Callable[[], Any], warmup: int, repeat: int) -> list[float]:
    """Seconds of each run, the shortest first."""
    for _ in range(warmup):
        run_once()
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        run_once()
        times.append(time.perf_counter() - started)
    return sorted(times)


def _summarize_times(times: list[float], variant: dict[str, Any]) -> dict[str, Any]:
    median = statistics.median(times)
    # The work of a program with symbolic sizes is that for other sizes than those of the arrays.
    is_static = not variant["representative"]
    return {
        "repeat": len(times),
        "min": times[0],
        "median": median,
        "p90": times[math.ceil(0.9 * len(times)) - 1],
        "gflops": variant["flops"] / median / 1e9 if is_static else None,
        "gbytes": variant["bytes"] / median / 1e9 if is_static else None,
    }


def _make_tables(answer: dict[str, Any]) -> list[Table]:
    rows = [
        (
            result["name"],
            f"{result['dtype']}[{','.join(map(str, result['shape']))}]",
            *(_number(result[part]) for part in ("min", "mean", "max")),
            f"{result['nonfinite']} not finite" if result["nonfinite"] else "",
        )
        for result in answer["results"]
    ]
    header = ("result", "type", "min", "mean", "max", "")
    tables = [Table(f"{answer['file']} on {answer['target']}", header, rows)]
    tables.append(Table("written", (), [(path,) for path in answer["written"]]))
    if "timing" in answer:
        timing = answer["timing"]
        row = [format_seconds(timing[part]) for part in ("min", "median", "p90")]
        rates = (timing["gflops"], timing["gbytes"])
        row += ["" if rate is None else f"{rate:.2f}" for rate in rates]
        tables.append(
            Table(f"{timing['repeat']} runs", ("min", "median", "p90", "GFLOP/s", "GB/s"), [row])
        )
    return tables


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
