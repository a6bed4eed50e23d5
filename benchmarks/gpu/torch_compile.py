"""Training steps of torch models on a GPU through `torch.compile`: Nova, inductor and eager torch.

    python benchmarks/gpu/torch_compile.py [bert] [resnet50] [mlp] [--rounds N] [--small]
        [--kernels]

Models are in bf16 with random weights; a step is forward, loss and backward from the same weights
and batch. It prints milliseconds of a step with steps in the queue, and the largest difference of
the gradients from those of eager torch, as a share of the largest gradient. With `--kernels`, also
the time of all kernels of a step, their number, and those that take longest.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

CONTENDERS = {"eager": None, "inductor": "inductor", "nova": "nova"}


def bert(small: bool) -> tuple[nn.Module, Callable[[Any], Any]]:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"num_hidden_layers": 2, "vocab_size": 1000} if small else {}
    config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
    model = BertForSequenceClassification(config)
    tokens = torch.randint(0, config.vocab_size, (4 if small else 32, 128), device="cuda")
    labels = torch.randint(0, 2, (len(tokens),), device="cuda")
    return model, lambda run: run(input_ids=tokens, labels=labels).loss


def resnet50(small: bool) -> tuple[nn.Module, Callable[[Any], Any]]:
    from torchvision.models import resnet50 as make

    size = 64 if small else 224
    images = torch.randn(4 if small else 64, 3, size, size, device="cuda", dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (len(images),), device="cuda")
    model = make().to(memory_format=torch.channels_last)
    return model, lambda run: nn.functional.cross_entropy(run(images).float(), labels)


def mlp(small: bool) -> tuple[nn.Module, Callable[[Any], Any]]:
    width = 64 if small else 1024
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
    x = torch.randn(256, width, device="cuda", dtype=torch.bfloat16)
    return model, lambda run: run(x).float().square().mean()


MODELS = {"bert": bert, "resnet50": resnet50, "mlp": mlp}


def print_kernels(step: Callable[[], None], most: int = 30) -> None:
    """The kernels of a step by name, those that take longest first."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as run:
        step()
        torch.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    for event in run.events() or ():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels.setdefault(event.name, []).append(event.device_time)
    number = sum(map(len, kernels.values()))
    print(f"  {sum(map(sum, kernels.values())) / 1000:.2f} ms in {number} launches")
    for name, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))[:most]:
        print(f"  {sum(times):9.1f} us {len(times):4}  {name[:100]}")


def measure(
    model: Any, loss_of: Any, backend: str | None, rounds: int, kernels: bool = False
) -> tuple[float, float, Any]:
    """Seconds of the first step, milliseconds of a step, and gradients of the first step."""
    torch._dynamo.reset()
    model = copy.deepcopy(model)
    run = model if backend is None else torch.compile(model, backend=backend)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        loss_of(run).backward()

    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    gradients = [p.grad.float() for p in model.parameters() if p.grad is not None]
    times = []
    for _ in range(rounds):
        step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 100)
    if kernels:
        print_kernels(step)
    return first, statistics.median(times), gradients


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="few layers and rows")
    parser.add_argument("--kernels", action="store_true", help="print the longest kernels")
    args = parser.parse_args()
    for name in args.models or MODELS:
        torch.manual_seed(0)
        model, loss_of = MODELS[name](args.small)
        model = model.to("cuda", torch.bfloat16)
        expected: list[Any] = []
        for contender, backend in CONTENDERS.items():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                first, step, gradients = measure(model, loss_of, backend, args.rounds, args.kernels)
            expected = expected or gradients
            largest = max(float(g.abs().max()) for g in expected)
            pairs = zip(gradients, expected, strict=True)
            difference = max(float((g - e).abs().max()) for g, e in pairs) / largest
            print(
                f"{name} {contender}: {step:.2f} ms a step, first {first:.1f} s, {difference:.4f}"
            )
            for warning in {str(w.message) for w in caught if "Nova" in str(w.message)}:
                print(f"  {warning}")


if __name__ == "__main__":
    main()
