"""Every figure that the kernels for Hopper GPUs are judged by, in one run and one table.

    python benchmarks/gpu/verdicts.py [--groups gemm,attention,...] [--json FILE]

Each group of figures has a process of its own. The GPT-2 step is first and alone, because the
seconds of its compile count; the others compile concurrently and measure one after the other
(`device_lock.py`), which takes about 100 seconds on 16 cores. A ratio to a peer is of one process,
except that of GPT-2 medium. A figure that is missing or NaN misses its bar. The status is 1 if one
does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.gpu.device_lock import LOCK_VARIABLE, exclusive_device

Figures = dict[str, float]
SECONDS = 100
"""After so long a group that has not ended is stopped; its figures are missing."""


@dataclass(frozen=True)
class Bar:
    """A bound of a figure, or of its quotient by the figure `peer`."""

    title: str
    figure: str
    bound: float
    at_least: bool = False
    peer: str = ""
    unit: str = ""

    def value(self, figures: Figures) -> float:
        """NaN where a figure is missing."""
        value = figures.get(self.figure, float("nan"))
        return value / figures.get(self.peer, float("nan")) if self.peer else value

    def is_met(self, figures: Figures) -> bool:
        value = self.value(figures)
        return value >= self.bound if self.at_least else value <= self.bound

    def row(self, figures: Figures) -> str:
        bound = f"at {'least' if self.at_least else 'most'} {self.bound:g}{self.unit}"
        verdict = "met" if self.is_met(figures) else "**missed**"
        figure = f"{self.value(figures):.4g}{self.unit}"
        if self.peer:
            values = (figures.get(name, float("nan")) for name in (self.figure, self.peer))
            figure += " ({:.5g} / {:.5g})".format(*values)
        return f"| {self.title} | {figure} | {bound} | {verdict} |"


def _ratio(title: str, name: str, bound: float) -> Bar:
    """The speed of Nova relative to the peer of a figure."""
    return Bar(title, f"{name} peer", bound, at_least=True, peer=name)


ATTENTION = {  # names of figures: arguments of `attention.Case`
    "1x16 8192x128 causal": ((1, 16, 8192, 128), True),
    "8x12 1024x64 causal": ((8, 12, 1024, 64), True),
    "8x12 1024x64": ((8, 12, 1024, 64), False),
    "2x8 4096x256 causal": ((2, 8, 4096, 256), True),
}
BARS = [
    _ratio("GEMM bf16 4096, of cuBLAS", "gemm 4096", 0.98),
    _ratio("GEMM bf16 8192, of cuBLAS", "gemm 8192", 0.98),
    _ratio("GEMM bf16 4096x11008x4096, of cuBLAS", "gemm 11008", 0.98),
    Bar("GEMMs of GPT-2 small, geometric mean", "gpt2 gemms mean", 1.0, at_least=True),
    Bar("GEMMs of GPT-2 small, slowest", "gpt2 gemms least", 0.93, at_least=True),
    _ratio("GEMM + bias + GELU, of torch.compile", "gemm gelu", 1.1),
    _ratio("GEMM fp8 8192, of torch._scaled_mm", "fp8 8192", 0.95),
    _ratio("GEMM f32 4096, of cuBLAS", "gemm f32", 0.97),
    *(
        _ratio(f"attention {name}{suffix}, of torch's best", f"attention {name}{suffix}", 1.0)
        for name in ATTENTION
        for suffix in ("", " with gradients")
    ),
    Bar("softmax 4096x50257 f32", "softmax", 430, unit=" us"),
    Bar("cross entropy 8192x50304 with gradients, of torch.compile", "cross entropy", 0.8,
        peer="cross entropy peer"),
    Bar("linear + cross entropy with gradients, of torch.compile", "linear", 0.9,
        peer="linear peer"),
    Bar("its memory", "linear bytes", 0.25, peer="linear peer bytes"),
    Bar("GPT-2 small step", "step", 16, unit=" ms"),
    Bar("its memory", "step GB", 5.5, unit=" GB"),
    Bar("its first step with an empty cache", "step seconds", 8, unit=" s"),
    Bar("losses of 100 steps: distance from torch.compile's, of eager torch's", "losses", 2,
        peer="losses peer"),
    Bar("GPT-2 medium step, of torch.compile", "medium", 0.9, peer="medium peer"),
    Bar("GPT-2 small forward, one sequence of 1024", "forward", 700, unit=" us"),
    Bar("tiny GPT step f32", "tiny", 700, unit=" us"),
]  # fmt: skip


def _pair(name: str, nova: float, peer: float) -> Figures:
    return {name: nova, f"{name} peer": peer}


def measure_step() -> Figures:
    from benchmarks.gpu import gpt2

    args = gpt2.parse(["step", "--only", "nova", "--steps", "2"])
    _, milliseconds, size, seconds = gpt2.measure_steps(args, gpt2.make_model("small"))["Nova"]
    return {"step": milliseconds, "step GB": size / 1e9, "step seconds": seconds}


def measure_gemm() -> Figures:
    from benchmarks.gpu import wgmma

    cases = {
        "gemm 4096": wgmma.Case(4096, 4096, 4096),
        "gemm 8192": wgmma.Case(8192, 8192, 8192),
        "gemm 11008": wgmma.Case(4096, 11008, 4096),
        "gemm gelu": wgmma.FUSED[0],
        "gemm f32": wgmma.Case(4096, 4096, 4096, element="f32"),
    }
    figures: Figures = {}
    for name, case in cases.items():
        times = wgmma.time_case(case)
        figures |= _pair(name, times["nova"], times["torch"])
    times_of_layers = [wgmma.time_case(case) for case in wgmma.GPT2]
    ratios = [times["torch"] / times["nova"] for times in times_of_layers]
    figures["gpt2 gemms mean"] = wgmma.geometric_mean(ratios)
    figures["gpt2 gemms least"] = min(ratios)
    return figures


def measure_rows() -> Figures:
    """fp8 and rows."""
    from benchmarks.gpu import fp8, rows

    times = fp8.time_case(fp8.Case(8192, 8192, 8192))
    figures = _pair("fp8 8192", times["nova"], fp8.best_of_torch(times))
    softmax = rows.time_workload(rows.workloads()[0], compiled=False)
    return figures | {"softmax": softmax["nova"]}


def measure_attention() -> Figures:
    from benchmarks.gpu import attention

    figures: Figures = {}
    for name, (sizes, causal) in ATTENTION.items():
        for gradients in (False, True):
            case = attention.Case(*sizes, causal=causal)
            times = attention.measure_case(case, gradients, ["auto"])
            title = f"attention {name}{' with gradients' if gradients else ''}"
            figures |= _pair(title, times["nova auto"], attention.best_of_torch(times))
    return figures


def measure_loss() -> Figures:
    import nova
    from benchmarks.gpu import gpt2

    args = gpt2.parse(["loss"])
    figures: Figures = {}
    for name, arrays, function, reference in (
        ("linear", gpt2.linear_arrays, nova.linear_cross_entropy, gpt2.torch_linear_cross_entropy),
        ("cross entropy", gpt2.score_arrays, nova.cross_entropy, gpt2.torch_cross_entropy),
    ):
        data = arrays("cuda")
        runs = gpt2.nova_loss(args, function, data), gpt2.torch_loss(reference, data)
        figures |= _pair(name, *(gpt2.timed(loss.run, loss.wait) * 1e3 for loss in runs))
        figures |= {f"{name} bytes": runs[0].size, f"{name} peer bytes": runs[1].size}
    return figures


def measure_losses() -> Figures:
    """How far the losses of 100 steps are from torch.compile's, on average."""
    from benchmarks.gpu import gpt2

    args = gpt2.parse(["losses", "--steps", "100"])
    losses = gpt2.training_losses(args, gpt2.make_model("small"))
    gpt2.print_losses(losses)
    nova, eager = (
        gpt2.loss_differences(losses, name, "torch.compile").mean() for name in ("Nova", "torch")
    )
    return _pair("losses", float(nova), float(eager))


def _medium(only: str) -> float:
    from benchmarks.gpu import gpt2

    args = gpt2.parse(["step", "--config", "medium", "--only", only, "--steps", "2"])
    ((_, milliseconds, *_),) = gpt2.measure_steps(args, gpt2.make_model("medium")).values()
    return milliseconds


def measure_medium() -> Figures:
    return {"medium": _medium("nova")}


def measure_medium_peer() -> Figures:
    return {"medium peer": _medium("torch")}


def measure_small() -> Figures:
    """The forward pass of GPT-2 small, and the step of the tiny GPT."""
    from benchmarks.gpu import gpt2, overlap

    args = gpt2.parse(["forward", "--only", "nova"])
    ((tokens, _),) = gpt2.make_batches("small", 1, 1)
    _, milliseconds = gpt2.nova_forward(args, gpt2.make_model("small"), tokens)
    call, _ = overlap.training("train_gpt")
    call()
    gpt2.wait_for_device()
    with exclusive_device():
        tiny = overlap.microseconds(call, 300)
    return {"forward": milliseconds * 1e3, "tiny": tiny}


GROUPS: dict[str, Callable[[], Figures]] = {
    "step": measure_step,
    "medium_peer": measure_medium_peer,
    "losses": measure_losses,
    "medium": measure_medium,
    "loss": measure_loss,
    "gemm": measure_gemm,
    "attention": measure_attention,
    "rows": measure_rows,
    "small": measure_small,
}
ALONE = ("step",)


def start(group: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process that measures a group and writes its figures to a file in `folder`."""
    environment = os.environ | {LOCK_VARIABLE: str(folder / "lock")}
    command = [sys.executable, __file__, "--measure", group, "--json", str(folder / group)]
    with open(folder / f"{group}.txt", "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def wait(processes: Sequence[subprocess.Popen[bytes]], deadline: float) -> None:
    """Wait for processes until the deadline, and end those that are left."""
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def measure_groups(groups: Sequence[str], folder: Path, seconds: float) -> Figures:
    """The figures of groups; the log of one that fails is printed."""
    deadline = time.monotonic() + seconds
    for group in groups:
        if group in ALONE:
            wait([start(group, folder)], deadline)
    wait([start(group, folder) for group in groups if group not in ALONE], deadline)
    figures: Figures = {}
    for group in groups:
        if (folder / group).exists():
            figures |= json.loads((folder / group).read_text())
        else:
            log = (folder / f"{group}.txt").read_text(errors="replace")
            print(f"{group} has no figures:\n{log[-2000:]}", flush=True)
    return figures


def table(figures: Figures) -> str:
    head = ["| figure | Nova (Nova / peer, or peer / Nova for speeds) | bar | verdict |"]
    rows = [bar.row(figures) for bar in BARS]
    return "\n".join([*head, "|---|---|---|---|", *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", default=",".join(GROUPS), help="some of these")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="the most time of all")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--measure", choices=tuple(GROUPS), help="one group, in this process")
    options = parser.parse_args(arguments)
    if options.measure:
        figures = GROUPS[options.measure]()
    else:
        with tempfile.TemporaryDirectory() as folder:
            figures = measure_groups(options.groups.split(","), Path(folder), options.seconds)
        print(table(figures))
    if options.json is not None:
        options.json.write_text(json.dumps(figures))
    return 0 if options.measure else int(not all(bar.is_met(figures) for bar in BARS))


if __name__ == "__main__":
    sys.exit(main())
