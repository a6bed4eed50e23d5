"""Published torch models through `torch.compile(backend="nova")`, against eager.

In: the models of `benchmarks/torch_zoo`. Each runs forward and backward in training mode, dropout
off, and is compared with eager. Out: one line per model: whether results and gradients agree, which
ops fell back to torch, compile seconds, and the time of a step as a ratio to eager's.

    python benchmarks/torch_models.py                     # all, as a table
    python benchmarks/torch_models.py --only bert,resnet18 --markdown
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

from torch_zoo import language, vision

from nova.errors import FallbackWarning

TOLERANCE = 1e-3
"""Largest relative error in the 2-norm of all results, and of all gradients together."""
SENSITIVITY = 20
"""An error may also be this many times that of eager with weights and inputs changed by 1e-7.

Deep networks with ReLU and batch norm over few values are discontinuous in the rounding: one sign
that flips changes many gradients.
"""


@dataclass
class Outcome:
    """How one model did."""

    name: str
    error: str = ""
    result_error: float = 0.0
    gradient_error: float = 0.0
    sensitivity: float = 0.0
    fallbacks: list[str] = field(default_factory=list)
    compile_seconds: float = 0.0
    ratio: float = 0.0

    @property
    def passed(self) -> bool:
        worst = max(self.result_error, self.gradient_error)
        return not self.error and worst <= max(TOLERANCE, SENSITIVITY * self.sensitivity)


def deterministic(module: nn.Module) -> nn.Module:
    """The module in training mode with dropout off, so that two runs are comparable."""
    module.train()
    for child in module.modules():
        if isinstance(child, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            child.p = 0.0
        for name in ("dropout", "attention_dropout", "activation_dropout", "layerdrop"):
            if isinstance(getattr(child, name, None), float):
                setattr(child, name, 0.0)
    for parameter in module.parameters():
        if parameter.dim() > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.02)  # no gradient passes a weight of zeros
    return module


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    """The float tensors of a result, in order."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_of(item)


def step(function: Callable[..., Any], module: nn.Module, args: tuple[Any, ...]) -> Any:
    """One forward and backward pass: results and gradients."""
    module.zero_grad(set_to_none=True)
    results = list(tensors_of(function(*args)))
    loss = sum((t + 1).square().mean() for t in results)
    loss.backward()
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    return [t.detach() for t in results], gradients


def relative_error(result: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The 2-norm of the difference of all tensors, relative to that of the expected ones."""
    if len(result) != len(expected):
        return float("inf")
    pairs = list(zip(result, expected, strict=True))
    difference = sum(float((a.double() - b.double()).square().sum()) for a, b in pairs)
    size = sum(float(b.double().square().sum()) for _, b in pairs)
    return (difference / max(size, 1e-30)) ** 0.5


def sensitivity(module: nn.Module, args: tuple[Any, ...], gradients: list[torch.Tensor]) -> float:
    """The largest error of eager's gradients in three runs with values changed by 1e-7."""
    worst = 0.0
    for _ in range(3):
        changed = copy.deepcopy(module)
        with torch.no_grad():
            for value in (*changed.parameters(), *(a for a in args if a.is_floating_point())):
                value.mul_(1 + 1e-7 * torch.randn_like(value))
        worst = max(worst, relative_error(step(changed, changed, args)[1], gradients))
    return worst


def best_time(run: Callable[[], Any], seconds: float) -> float:
    """The shortest of several runs."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def run_model(name: str, make: Callable[[], Any], seconds: float, threads: int = 1) -> Outcome:
    """Compile, run and compare one model."""
    outcome = Outcome(name)
    torch._dynamo.reset()
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            module, args = make()
            deterministic(module)
            compiled_module = copy.deepcopy(module)
            compiled = torch.compile(compiled_module, backend="nova", options={"threads": threads})
            expected, expected_gradients = step(module, module, args)
            outcome.sensitivity = sensitivity(
                copy.deepcopy(module), copy.deepcopy(args), expected_gradients
            )
            start = time.perf_counter()
            result, gradients = step(compiled, compiled_module, args)
            outcome.compile_seconds = time.perf_counter() - start
            outcome.result_error = relative_error(result, expected)
            outcome.gradient_error = relative_error(gradients, expected_gradients)
            eager = best_time(lambda: step(module, module, args), seconds)
            nova = best_time(lambda: step(compiled, compiled_module, args), seconds)
            outcome.ratio = nova / eager
        except Exception as error:  # any failure of a model is an entry of the table
            outcome.error = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    outcome.fallbacks = [str(w.message) for w in caught if isinstance(w.message, FallbackWarning)]
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each measurement")
    parser.add_argument("--threads", type=int, default=1, help="of torch and of Nova")
    parser.add_argument("--markdown", action="store_true", help="a table in Markdown")
    parser.add_argument("--verbose", action="store_true", help="print fallbacks")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    models = {**vision.MODELS, **language.MODELS}
    names = options.only.split(",") if options.only else list(models)
    edge = "| " if options.markdown else ""
    titles = "outcome | result error | gradient error | eager's own | fallbacks | compile s | ratio"
    print(f"{edge}model | {titles}")
    if options.markdown:
        print("|---|---|---|---|---|---|---|---|")
    outcomes = []
    for name in names:
        outcome = run_model(name, models[name], options.seconds, options.threads)
        outcomes.append(outcome)
        state = "pass" if outcome.passed else outcome.error or "wrong"
        numbers = (
            f"{outcome.result_error:.1e} | {outcome.gradient_error:.1e} | {outcome.sensitivity:.1e}"
        )
        counts = f"{len(outcome.fallbacks)} | {outcome.compile_seconds:.1f} | {outcome.ratio:.2f}"
        print(f"{edge}{name} | {state} | {numbers} | {counts}", flush=True)
        if options.verbose:
            for text in outcome.fallbacks:
                print("   ", text)
    passed = [o for o in outcomes if o.passed]
    complete = [o for o in passed if not o.fallbacks]
    print(f"\n{len(passed)} of {len(outcomes)} pass, {len(complete)} of them without fallback")


if __name__ == "__main__":
    main()
