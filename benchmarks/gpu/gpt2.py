"""GPT-2 on a GPU, compared with torch.compile from the same weights, on the same tokens.

    python benchmarks/gpu/gpt2.py step [--config small|medium|tiny] [--steps N] [--trace]
    python benchmarks/gpu/gpt2.py forward [--config small]
    python benchmarks/gpu/gpt2.py loss
    python benchmarks/gpu/gpt2.py losses [--steps 100] [--table FILE]
    python benchmarks/gpu/gpt2.py compile [--config small|medium|tiny]
    python benchmarks/gpu/gpt2.py all

`step` is a training step in bf16 with AdamW; parameters and moments are f32. It prints the seconds
of a compile with an empty cache, the bytes on the device, the milliseconds of a step with steps in
the queue, and the losses. With `--trace` it prints the time of each kernel of one step. `forward`
is the forward pass of one sequence in bf16. `loss` is the linear layer to the vocabulary with its
cross entropy and gradients. `losses` trains from the same weights with Nova, torch.compile and
eager torch, and compares the losses of all steps: the two of torch differ by the noise of bf16.
`compile` compiles the training step for an H200, on a machine without one: seconds, CPU seconds of
the thread that lowers, and the digest of the PTX, which two versions of Nova are compared by.
`all` runs each of these, and `step` of both sizes, in a process of its own, with traces.
`--only nova` leaves torch out. All run on device
`sim` too (`--device sim --config tiny --only nova`), which checks this script.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import nova
from benchmarks.gpu.device_lock import exclusive_device
from nova import optim

CONFIGS = {  # sequences of a batch, vocabulary, context, width, heads, layers
    "small": (8, 50304, 1024, 768, 12, 12),
    "medium": (4, 50304, 1024, 1024, 16, 24),
    "tiny": (2, 512, 64, 64, 2, 2),
}
RATE, DECAY = 3e-4, 0.01
WORKLOADS = ("step", "forward", "loss", "losses", "compile", "all")
ROUNDS = 7


def make_model(config: str) -> Any:
    from gpt import GPT, Config

    np.random.seed(0)
    model = GPT(Config(*CONFIGS[config][1:]))
    generator = np.random.default_rng(0)
    for name, param in model.named_parameters():
        if param.data.ndim == 2:
            param.data[...] = 0.02 * generator.standard_normal(param.shape, np.float32)
        elif name.endswith("bias"):
            param.data[...] = 0
    return model


def make_batches(config: str, batch: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random windows of tokens of which some are far more likely than others."""
    _, vocabulary, context, *_ = CONFIGS[config]
    generator = np.random.default_rng(1)
    windows = []
    for _ in range(count):
        drawn = generator.random((batch, context + 1)) ** 3
        tokens = (vocabulary * drawn).astype(np.int64)
        windows.append((tokens[:, :-1].copy(), tokens[:, 1:].copy()))
    return windows


# --- torch ----------------------------------------------------------------------------------------


def torch_scores(p: dict[str, Any], tokens: Any, config: str) -> Any:
    from torch.nn import functional as f

    _, _, _, width, heads, layers = CONFIGS[config]
    batch, length = tokens.shape

    def norm(name: str, x: Any) -> Any:
        return f.layer_norm(x, (width,), p[f"{name}.weight"], p[f"{name}.bias"])

    def linear(name: str, x: Any) -> Any:
        return f.linear(x, p[f"{name}weight"], p[f"{name}bias"])

    x = f.embedding(tokens, p["tokens.weight"]) + p["positions.weight"][:length]
    for i in range(layers):
        b = f"blocks.{i}"
        qkv = linear(f"{b}.attention.in_proj_", norm(f"{b}.norm1", x))
        q, k, v = qkv.view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        x = x + linear(f"{b}.attention.out_proj.", mixed)
        hidden = f.gelu(linear(f"{b}.up.", norm(f"{b}.norm2", x)), approximate="tanh")
        x = x + linear(f"{b}.down.", hidden)
    return f.linear(norm("norm", x), p["tokens.weight"])


def torch_training(config: str, model: Any, *, compiled: bool = True) -> Callable[..., Any]:
    """A step of torch with parameters of its own; it returns the loss on the device."""
    import torch
    from torch.nn import functional as f

    torch.set_float32_matmul_precision("high")
    p = {n: torch.from_numpy(np.array(a.data)).cuda() for n, a in model.named_parameters()}
    for value in p.values():
        value.requires_grad_()
    optimizer = torch.optim.AdamW(p.values(), RATE, weight_decay=DECAY, fused=True)

    def loss_of(tokens: Any, following: Any) -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            scores = torch_scores(p, tokens, config)
        return f.cross_entropy(scores.float().view(-1, scores.shape[-1]), following.view(-1))

    function = torch.compile(loss_of) if compiled else loss_of

    def step(tokens: Any, following: Any) -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = function(tokens, following)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def torch_step(config: str, model: Any, batches: Any) -> tuple[list[float], float, float, float]:
    """Losses, milliseconds of a step, bytes, seconds of the first step."""
    import torch

    step = torch_training(config, model)
    placed = [tuple(torch.from_numpy(a).cuda() for a in batch) for batch in batches]
    start = time.perf_counter()
    losses = [step(*placed[0])]
    torch.cuda.synchronize()
    cold = time.perf_counter() - start
    losses += [step(*batch) for batch in placed[1:]]
    values = [float(loss) for loss in losses]
    torch.cuda.reset_peak_memory_stats()
    step(*placed[0])
    memory = torch.cuda.max_memory_allocated()
    return values, timed(lambda: step(*placed[0]), torch.cuda.synchronize), memory, cold


def torch_forward(config: str, model: Any, tokens: np.ndarray) -> tuple[np.ndarray, float]:
    """The scores, and milliseconds of a run; the best of two modes."""
    import torch

    p = {
        n: torch.from_numpy(np.array(a.data)).cuda().bfloat16() for n, a in model.named_parameters()
    }
    placed = torch.from_numpy(tokens).cuda()
    best, scores = float("inf"), None
    with torch.no_grad():
        for mode in ("default", "reduce-overhead"):
            compiled = torch.compile(lambda t: torch_scores(p, t, config), mode=mode)
            for _ in range(3):
                scores = compiled(placed).float()
            best = min(best, timed(partial(compiled, placed), torch.cuda.synchronize))
    return scores.cpu().numpy(), best


# --- Nova -----------------------------------------------------------------------------------------


def timed(run: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """The median milliseconds of a run, with runs in the queue."""
    run()
    wait()
    with exclusive_device():
        return _median_round(run, wait)


def _median_round(run: Callable[[], Any], wait: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    wait()
    count = max(3, int(0.2 / (time.perf_counter() - start)))
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            run()
        wait()
        rounds.append((time.perf_counter() - start) / count * 1e3)
    return statistics.median(rounds)


def wait_for_device() -> None:
    """Wait for all queues of the device; Nova uses its primary context, as torch does."""
    import torch

    if torch.cuda.is_available():  # the simulated device has none
        torch.cuda.synchronize()


def print_kernels(step: Any, batch: Any) -> None:
    """The kernels of one step by time, with the number of their launches."""
    with nova.trace() as trace:
        np.asarray(step(*batch).numpy())
    times: dict[str, list[float]] = defaultdict(list)
    for run in trace.runs:
        for span in run.spans:
            if span.lane == "kernels":
                times[span.name].append((span.end - span.start) / 1e3)
    total = sum(map(sum, times.values()))
    print(f"kernels: {total:.0f} us")
    for name, spans in sorted(times.items(), key=lambda item: -sum(item[1]))[:60]:
        print(f"  {sum(spans):9.1f} us {len(spans):4d} x {statistics.median(spans):8.1f}  {name}")


def nova_training(args: Any, model: Any) -> tuple[Any, Any]:
    """A step of Nova, which changes the parameters of the model, and its optimizer."""
    optimizer = optim.AdamW(model.parameters(), RATE, weight_decay=DECAY)
    step = nova.train_step(
        model, lambda m, x, y: m.loss(x, y), optimizer, precision="bf16", **args.where
    )
    return step, optimizer


def nova_step(args: Any, model: Any, batches: Any) -> tuple[list[float], float, float, float]:
    """Losses, milliseconds of a step, bytes, seconds of the first step."""
    step, optimizer = nova_training(args, model)
    batches = [[nova.to_device(a, args.device) for a in batch] for batch in batches]
    start = time.perf_counter()
    lowered = step.lower(*batches[0])
    stages = " ".join(
        f"{n} {m['seconds']:.2f}" for n, m in lowered.metrics.items() if m["seconds"] > 0.05
    )
    print(f"Nova: compile {time.perf_counter() - start:.1f} s: {stages}")
    losses = [step(*batches[0])]
    float(losses[0].numpy())
    cold = time.perf_counter() - start
    params = sum(p.data.nbytes for p in model.parameters())
    moments = sum(a.nbytes for a in optimizer.init_state().values())
    memory = lowered.workspace_size + params + moments
    losses += [step(*batch) for batch in batches[1:]]
    values = [float(loss.numpy()) for loss in losses]
    batch = batches[0]
    if args.trace:
        print_kernels(step, batch)
    milliseconds = 0.0
    if args.device != "sim":
        milliseconds = timed(lambda: step(*batch), wait_for_device)
    return values, milliseconds, memory, cold


def print_compile(args: Any, model: Any) -> None:
    """Compile a training step for sm_90a, without a device."""
    args.where = {"target": "cuda:sm_90a"}
    step, _ = nova_training(args, model)
    (batch,) = make_batches(args.config, CONFIGS[args.config][0], 1)
    wall, cpu = time.perf_counter(), time.thread_time()
    lowered = step.lower(*batch)
    wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    digest = hashlib.sha256(lowered.stages["ptx"].encode()).hexdigest()[:16]
    print(f"compile {wall:.2f} s, CPU of this thread {cpu:.2f} s, PTX {digest}")
    print(" ".join(f"{name} {row['seconds']:.2f}" for name, row in lowered.metrics.items()))


def nova_forward(args: Any, model: Any, tokens: np.ndarray) -> tuple[np.ndarray, float]:
    """The scores, and milliseconds of a run; converts the parameters of the model."""
    model.to("bf16")
    x = nova.tensor(tokens, name="tokens")
    program = nova.compile(
        model.forward(x), inputs=[x], params=list(model.parameters()), **args.where
    )
    # Parameters of a graph stay on the host, where they may change between runs: without these
    # arrays on the device, every run would copy them.
    values = [p.data for p in model.parameters()]
    placed = [nova.to_device(array, args.device) for array in (tokens, *values)]
    scores = program(*placed)
    if args.trace:
        print_kernels(program, placed)
    milliseconds = timed(lambda: program(*placed), wait_for_device) if args.timed else 0.0
    return np.asarray(scores.numpy(), np.float32), milliseconds


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a command line, with `where` programs are compiled for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--config", choices=tuple(CONFIGS), default="small")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--table", type=Path, help="write the losses of all steps to this file")
    parser.add_argument("--only", choices=("nova", "torch"))
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args(arguments)
    args.timed = args.device != "sim"
    simulated = {"target": "cuda:sm_90a", "run_mode": "sim"}
    args.where = simulated if args.device == "sim" else {"target": "cuda"}
    nova.knobs.cache = False
    return args


def main() -> None:
    args = parse()
    if args.workload == "all":
        run_all()
        return
    if args.workload == "loss":
        compare_losses(args)
        return
    model = make_model(args.config)
    if args.workload == "compile":
        print_compile(args, model)
    elif args.workload == "step":
        compare_steps(args, model)
    elif args.workload == "losses":
        compare_training(args, model)
    else:
        compare_forward(args, model)


def run_all() -> None:
    """Every workload, each in a process of its own; one that fails does not stop the others."""
    for words in (
        "step --trace --steps 4",
        "forward --trace",
        "loss --trace",
        "step --config medium --trace --steps 4",
        "losses --steps 100",
    ):
        print(f"-- {words}", flush=True)
        subprocess.run([sys.executable, __file__, *words.split()])


Step = tuple[list[float], float, float, float]
"""Losses, milliseconds of a step, bytes, seconds of the first step."""


def measure_steps(args: Any, model: Any) -> dict[str, Step]:
    batches = make_batches(args.config, CONFIGS[args.config][0], args.steps)
    results = {}
    # torch first: the step of Nova changes the parameters of the model.
    if args.only != "nova":
        results["torch.compile"] = torch_step(args.config, model, batches)
    if args.only != "torch":
        results["Nova"] = nova_step(args, model, batches)
    return results


def compare_steps(args: Any, model: Any) -> None:
    results = measure_steps(args, model)
    for name, (losses, milliseconds, memory, cold) in results.items():
        print(
            f"{name}: {milliseconds:.2f} ms, {memory / 1e9:.2f} GB, first step {cold:.1f} s, "
            f"losses {' '.join(f'{loss:.4f}' for loss in losses[:4])} ... {losses[-1]:.4f}"
        )
    if len(results) == 2:
        expected, losses = (np.array(r[0]) for r in results.values())
        print(f"losses differ by at most {np.abs(losses - expected).max():.4f}")


def train(step: Callable[..., Any], batches: Sequence[Any]) -> list[Any]:
    """The losses of all steps; others measure while the first one is compiled."""
    losses = [step(*batches[0])]
    wait_for_device()
    with exclusive_device():
        losses += [step(*batch) for batch in batches[1:]]
        wait_for_device()
    return losses


def training_losses(args: Any, model: Any) -> dict[str, list[float]]:
    """The losses of all steps, of Nova and of torch twice, from the same weights."""
    batches = make_batches(args.config, CONFIGS[args.config][0], args.steps)
    losses: dict[str, list[float]] = {}
    if args.only != "nova":
        import torch

        placed = [tuple(torch.from_numpy(a).cuda() for a in batch) for batch in batches]
        for name, compiled in (("torch.compile", True), ("torch", False)):
            step = torch_training(args.config, model, compiled=compiled)
            losses[name] = [float(loss) for loss in train(step, placed)]
            del step
            torch.cuda.empty_cache()
    if args.only != "torch":
        step, _ = nova_training(args, model)
        arrays = [[nova.to_device(a, args.device) for a in batch] for batch in batches]
        losses["Nova"] = [float(loss.numpy()) for loss in train(step, arrays)]
    return losses


def compare_training(args: Any, model: Any) -> None:
    losses = training_losses(args, model)
    print_losses(losses)
    if args.table is not None:
        rows = [",".join(["step", *losses])]
        rows += [
            ",".join([str(i), *(f"{x:.6f}" for x in row)])
            for i, row in enumerate(zip(*losses.values(), strict=True), 1)
        ]
        args.table.write_text("\n".join(rows) + "\n")


def print_losses(losses: dict[str, list[float]]) -> None:
    """Every tenth loss, and how far the others are from the first in all steps."""
    count = len(next(iter(losses.values())))
    shown = [0, *range(9, count, 10)]
    print("| step | " + " | ".join(str(i + 1) for i in shown) + " |")
    for name, values in losses.items():
        print(f"| {name} | " + " | ".join(f"{values[i]:.4f}" for i in shown) + " |")
    base, *others = losses
    for name in others:
        apart = loss_differences(losses, name, base)
        print(f"{name} - {base}: at most {apart.max():.2e}, {apart.mean():.2e} on average")


def loss_differences(losses: dict[str, list[float]], name: str, base: str) -> np.ndarray:
    return np.abs(np.array(losses[name]) - np.array(losses[base]))


@dataclass(frozen=True)
class LossRun:
    """A loss with its gradients: one run, the bytes that it needs, the loss."""

    run: Callable[[], Any]
    wait: Callable[[], Any]
    size: int
    value: float


def linear_arrays(device: str) -> list[np.ndarray]:
    """Rows, a weight and targets of a linear layer with cross entropy."""
    rows, width, vocabulary = (8192, 768, 50304) if device != "sim" else (256, 64, 512)
    generator = np.random.default_rng(0)
    shapes = (rows, width), (vocabulary, width)
    return [*_bf16(generator, shapes), generator.integers(0, vocabulary, rows)]


def score_arrays(device: str) -> list[np.ndarray]:
    """Scores and targets of a cross entropy."""
    rows, vocabulary = (8192, 50304) if device != "sim" else (256, 512)
    generator = np.random.default_rng(0)
    return [*_bf16(generator, [(rows, vocabulary)]), generator.integers(0, vocabulary, rows)]


def _bf16(generator: np.random.Generator, shapes: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    import ml_dtypes

    return [
        (0.05 * generator.standard_normal(shape, np.float32)).astype(ml_dtypes.bfloat16)
        for shape in shapes
    ]


def nova_loss(args: Any, function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> LossRun:
    """`function` of tensors and targets, with gradients of the tensors."""
    *values, target = (np.broadcast_to(np.zeros((), a.dtype), a.shape) for a in arrays)
    leaves, T = [nova.tensor(a, requires_grad=True) for a in values], nova.tensor(target)
    gradients = nova.grad(lambda *a: function(*a, T), argnums=tuple(range(len(leaves))))(*leaves)
    gradients = gradients if isinstance(gradients, tuple | list) else (gradients,)
    program = nova.compile([function(*leaves, T), *gradients], inputs=[*leaves, T], **args.where)
    placed = [nova.to_device(a, args.device) for a in arrays]
    value = float(np.asarray(program(*placed)[0].numpy(), np.float32))
    if args.trace:
        print_kernels(lambda *arrays: program(*arrays)[0], placed)
    return LossRun(partial(program, *placed), wait_for_device, program.workspace_size, value)


def torch_loss(function: Callable[..., Any], arrays: Sequence[np.ndarray]) -> LossRun:
    """The same by torch.compile; the bytes are those of a run without its results."""
    import torch

    *values, target = arrays
    leaves = [torch.from_numpy(a.view(np.int16)).cuda().view(torch.bfloat16) for a in values]
    for leaf in leaves:
        leaf.requires_grad_()
    placed = torch.from_numpy(target).cuda()
    compiled = torch.compile(lambda *tensors: function(*tensors, placed))

    def run() -> Any:
        for leaf in leaves:
            leaf.grad = None
        loss = compiled(*leaves)
        loss.backward()
        return loss

    value = float(run())
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    size = torch.cuda.max_memory_allocated() - before
    return LossRun(run, torch.cuda.synchronize, size, value)


def torch_cross_entropy(scores: Any, target: Any) -> Any:
    from torch.nn import functional as f

    return f.cross_entropy(scores.float(), target)


def torch_linear_cross_entropy(x: Any, weight: Any, target: Any) -> Any:
    from torch.nn import functional as f

    return torch_cross_entropy(f.linear(x, weight), target)


def compare_losses(args: Any) -> None:
    arrays = linear_arrays(args.device)
    functions = {
        "Nova linear_cross_entropy": partial(nova_loss, args, nova.linear_cross_entropy),
        "Nova cross_entropy(linear)": partial(
            nova_loss, args, lambda x, w, t: nova.cross_entropy(nova.linear(x, w), t)
        ),
    }
    if args.only != "nova":
        functions["torch.compile"] = partial(torch_loss, torch_linear_cross_entropy)
    for name, make in functions.items():
        loss = make(arrays)
        milliseconds = timed(loss.run, loss.wait) if args.timed else 0.0
        print(
            f"{name}: {milliseconds * 1e3:.0f} us, {loss.size / 1e6:.2f} MB, loss {loss.value:.4f}"
        )


def compare_forward(args: Any, model: Any) -> None:
    ((tokens, _),) = make_batches(args.config, 1, 1)
    expected = None
    if args.only != "nova":
        expected, milliseconds = torch_forward(args.config, model, tokens)
        print(f"torch.compile: {milliseconds * 1e3:.0f} us")
    scores, milliseconds = nova_forward(args, model, tokens)
    print(f"Nova: {milliseconds * 1e3:.0f} us")
    if expected is not None:
        difference = np.abs(scores - expected).max() / np.abs(expected).max()
        print(f"largest difference {difference:.4f} of the largest score")


if __name__ == "__main__":
    main()
