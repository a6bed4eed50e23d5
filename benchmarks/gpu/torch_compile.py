"""Training steps of torch models on a GPU through `torch.compile`: Nova, inductor and eager torch.

    python benchmarks/gpu/torch_compile.py [bert] [resnet50] [resnet50-forward] [mlp] [--rounds N]
        [--small] [--kernels [N]] [--contenders eager inductor nova]

Models are in bf16 with random weights; a step is forward, loss and backward from the same weights
and batch, or the forward pass of a batch without gradients. It prints milliseconds of a step with
steps in the queue, milliseconds that the host takes to enqueue one, and the largest difference of
the gradients (or results) from those of the first contender, as a share of the largest one. With
`--kernels`, also the time of all kernels of a step, their number, and those N that take longest;
times of launches that start before the one before ends overlap (`NOVA_DEVICE_OVERLAP=off`: none).
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


def resnet50_forward(small: bool) -> tuple[nn.Module, Callable[[Any], Any]]:
    from torchvision.models import resnet50 as make

    size = 64 if small else 224
    images = torch.randn(4 if small else 32, 3, size, size, device="cuda", dtype=torch.bfloat16)
    images = images.to(memory_format=torch.channels_last)
    model = make().to(memory_format=torch.channels_last).eval().requires_grad_(False)
    return model, lambda run: run(images)


def mlp(small: bool) -> tuple[nn.Module, Callable[[Any], Any]]:
    width = 64 if small else 1024
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
    x = torch.randn(256, width, device="cuda", dtype=torch.bfloat16)
    return model, lambda run: run(x).float().square().mean()


MODELS = {
    "bert": bert,
    "resnet50": resnet50,
    "resnet50-forward": resnet50_forward,
    "mlp": mlp,
}


def print_kernels(step: Callable[[], None], most: int) -> None:
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
    model: Any, loss_of: Any, backend: str | None, rounds: int, kernels: int = 0
) -> tuple[float, float, float, Any]:
    """Seconds of the first step, milliseconds of a step and of its host, gradients or results."""
    torch._dynamo.reset()
    model = copy.deepcopy(model)
    run = model if backend is None else torch.compile(model, backend=backend)
    is_training = any(p.requires_grad for p in model.parameters())

    def step() -> Any:
        model.zero_grad(set_to_none=True)
        value = loss_of(run)
        return value.backward() if is_training else value

    start = time.perf_counter()
    value = step()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    if is_training:
        results = [p.grad.float() for p in model.parameters() if p.grad is not None]
    else:
        results = [value.float()]
    times, host = [], []
    for _ in range(rounds):
        step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        host.append((time.perf_counter() - start) * 1000)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 100)
    if kernels:
        print_kernels(step, kernels)
    return first, statistics.median(times), statistics.median(host), results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="few layers and rows")
    parser.add_argument(
        "--kernels", type=int, nargs="?", const=30, default=0, help="print the longest kernels"
    )
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    args = parser.parse_args()
    for name in args.models or MODELS:
        torch.manual_seed(0)
        model, loss_of = MODELS[name](args.small)
        model = model.to("cuda", torch.bfloat16)
        expected: list[Any] = []
        for contender in args.contenders:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                first, step, host, results = measure(
                    model, loss_of, CONTENDERS[contender], args.rounds, args.kernels
                )
            expected = expected or results
            largest = max(float(g.abs().max()) for g in expected)
            pairs = zip(results, expected, strict=True)
            difference = max(float((g - e).abs().max()) for g, e in pairs) / largest
            print(
                f"{name} {contender}: {step:.2f} ms a step, host {host:.2f} ms, "
                f"first {first:.1f} s, {difference:.4f}"
            )
            for warning in {str(w.message) for w in caught if "Nova" in str(w.message)}:
                print(f"  {warning}")


if __name__ == "__main__":
    main()
