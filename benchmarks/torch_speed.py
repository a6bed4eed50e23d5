"""Inference of torch models next to torch eager, inductor, onnxruntime and OpenVINO.

In: ResNet-50 (also with batch 8), BERT-base and GPT-2 at 128 tokens, MobileNetV3 (large), the
encoder of Whisper-tiny and an LSTM (hidden 512, 128 steps, batch 8), in f32, batch 1, random
weights. `nova` is `torch.compile(backend="nova")`, which has
the weights as arguments; `nova_frozen` is `nova.from_torch(...).compile(freeze=True)`, where they
are constants. Out: milliseconds of a call for each, best and median of the rounds, and the better
median of these two as a ratio to the best median of the others. All run in one process, in
interleaved rounds: a busy machine slows all of them. Results are compared with eager's first. A
peer that is not installed or that fails is left out, with the reason. With `--cpu-time` a call is
measured by the processor time of all threads of the process: on a machine with other load that
varies much less than the time on the clock, and with one thread both are the same otherwise.

    python benchmarks/torch_speed.py --threads 1 [--only bert,gpt2] [--rounds 9] [--cpu-time]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from torch_zoo.vision import import_torchvision  # found from the path above

Run = Callable[[], Any]
PEERS = ("nova", "nova_frozen", "eager", "inductor", "onnxruntime", "openvino")
# A round calls each program for about this long, at least once.
_SECONDS = 0.15


# --- models ---------------------------------------------------------------------------------------


class _Hidden(torch.nn.Module):
    """A model of transformers that returns one tensor."""

    def __init__(self, model: Any, field: str):
        super().__init__()
        self.model, self.field = model, field

    def forward(self, x: Any) -> Any:
        return getattr(self.model(x, return_dict=True), self.field)


class Sequence(torch.nn.Module):
    """An LSTM that returns its outputs only."""

    def __init__(self, width: int):
        super().__init__()
        self.lstm = torch.nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.lstm(x)[0]


def _resnet50(batch: int = 1) -> tuple[Any, Any]:
    return import_torchvision().models.resnet50(), torch.rand(batch, 3, 224, 224)


def _mobilenet() -> tuple[Any, Any]:
    return import_torchvision().models.mobilenet_v3_large(), torch.rand(1, 3, 224, 224)


def _lstm() -> tuple[Any, Any]:
    return Sequence(512), torch.rand(8, 128, 512)


def _import_transformers() -> Any:
    """transformers, which loads a torchvision that is installed."""
    if find_spec("torchvision"):
        import_torchvision()
    import transformers

    return transformers


def _bert() -> tuple[Any, Any]:
    transformers = _import_transformers()
    model = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)
    return _Hidden(model, "last_hidden_state"), torch.randint(0, 30000, (1, 128))


def _gpt2() -> tuple[Any, Any]:
    transformers = _import_transformers()
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    return _Hidden(model, "logits"), torch.randint(0, 50000, (1, 128))


def _whisper() -> tuple[Any, Any]:
    transformers = _import_transformers()
    config = transformers.WhisperConfig(
        d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536
    )
    encoder = transformers.WhisperModel(config).encoder
    return _Hidden(encoder, "last_hidden_state"), torch.rand(1, 80, 3000)


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "resnet50": _resnet50,
    "resnet50_b8": lambda: _resnet50(8),
    "bert": _bert,
    "gpt2": _gpt2,
    "mobilenet_v3": _mobilenet,
    "whisper_tiny": _whisper,
    "lstm": _lstm,
}


# --- peers ----------------------------------------------------------------------------------------


def _compiled(model: Any, x: Any, backend: str, options: dict[str, Any] | None) -> Run:
    torch._dynamo.reset()
    program = torch.compile(model, backend=backend, options=options, fullgraph=True)
    program(x)
    return lambda: program(x)


def _export(model: Any, x: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    if not path.exists():
        torch.onnx.export(model, (x,), path, dynamo=True, verbose=False)
    return path


def _onnxruntime(model: Any, x: Any, threads: int, folder: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(_export(model, x, folder), options)
    feed = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, feed)[0]


def _openvino(model: Any, x: Any, threads: int, folder: Path) -> Run:
    import openvino

    config = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    program = openvino.compile_model(str(_export(model, x, folder)), "CPU", config)
    request, feed = program.create_infer_request(), x.numpy()
    return lambda: request.infer([feed])[0]


def _frozen(model: Any, x: Any) -> Run:
    """A program with the weights as constants, as onnxruntime and OpenVINO have them."""
    import nova

    program = nova.from_torch(model, x).compile(freeze=True)
    array = x.numpy()
    return lambda: program(array)


def make_run(peer: str, model: Any, x: Any, threads: int, folder: Path) -> Run:
    """A function that runs the model once through a peer."""
    if peer == "eager":
        return lambda: model(x)
    if peer == "nova":
        return _compiled(model, x, "nova", {"threads": threads})
    if peer == "nova_frozen":
        return _frozen(model, x)
    if peer == "inductor":
        return _compiled(model, x, "inductor", None)
    return {"onnxruntime": _onnxruntime, "openvino": _openvino}[peer](model, x, threads, folder)


# --- measurement ----------------------------------------------------------------------------------


def measure(
    runs: dict[str, Run], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """The milliseconds of a call in each round, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            calls, begin = [], time.perf_counter()
            while not calls or time.perf_counter() - begin < _SECONDS:
                start = clock()
                run()
                calls.append(clock() - start)
            times[name].append(min(calls) * 1e3)
    return times


def compare(
    name: str,
    threads: int,
    rounds: int,
    peers: tuple[str, ...],
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """The times of one model by peer, Nova's error, and the reasons of peers that are absent."""
    torch.manual_seed(0)
    model, x = MODELS[name]()
    model.eval()
    runs: dict[str, Run] = {}
    absent: dict[str, str] = {}
    import nova

    threads_of_nova = nova.knobs.override(threads=threads)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder, threads_of_nova:
        expected = model(x).numpy()
        for peer in peers:
            begin = time.perf_counter()
            try:
                runs[peer] = make_run(peer, model, x, threads, Path(folder))
                result = np.asarray(runs[peer]())
            except Exception as error:  # a peer's failure is a result of its own
                runs.pop(peer, None)
                absent[peer] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                continue
            difference = np.abs(result - expected).max() / np.abs(expected).max()
            seconds = time.perf_counter() - begin
            print(f"# {name} {peer}: ready in {seconds:.0f} s, {difference:.1e}", file=sys.stderr)
            if difference > 1e-3:
                absent[peer] = f"results differ from eager's by {difference:.1e}"
                runs.pop(peer)
        times = measure(runs, rounds, clock)
    return {"model": name, "times": times, "absent": absent}


def row(result: dict[str, Any], peers: tuple[str, ...]) -> str:
    """A line of the table: best and median of each, and the ratio of Nova's median to the best.

    Rounds are interleaved, so that medians are of the same load; the best ones are of single calls.
    """
    times = result["times"]
    cells = [f"{min(times[p]):.2f} ({median(times[p]):.2f})" if p in times else "-" for p in peers]
    others = {p: median(t) for p, t in times.items() if not p.startswith("nova")}
    ours = [median(t) for p, t in times.items() if p.startswith("nova")]
    ratio = "-"
    if ours and others:
        best = min(others, key=lambda p: others[p])
        ratio = f"{min(ours) / others[best]:.2f} ({best})"
    return f"| {result['model']} | {' | '.join(cells)} | {ratio} |"


def run_table(
    description: str | None,
    heading: str,
    models: Iterable[str],
    all_peers: Iterable[str],
    rounds: int,
    compare: Callable[..., dict[str, Any]],
) -> None:
    """The command line of a table: a row a model, a column a peer."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default=",".join(models))
    parser.add_argument("--peers", default=",".join(all_peers))
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    peers = tuple(options.peers.split(","))
    print(f"| {heading} | {' | '.join(peers)} | Nova / best |\n|{'---|' * (len(peers) + 2)}")
    for name in options.only.split(","):
        result = compare(name, options.threads, options.rounds, peers, clock)
        print(row(result, peers), flush=True)
        for peer, reason in result["absent"].items():
            print(f"# {name} without {peer}: {reason}", file=sys.stderr)


def main() -> None:
    run_table(__doc__, "model", MODELS, PEERS, 9, compare)


if __name__ == "__main__":
    main()
