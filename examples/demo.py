"""The tour of Nova: define a model, watch it being compiled, train it, save it, load it again.

`make demo` runs this. The model reads hand-written digits (`examples/digits.py`: a real data set
of 1,797 images). One compiled program does a whole training step: forward, backward and the
update of the parameters in place.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import nova
from nova.data import Batches
from nova.train import History
from nova.train.step import TrainStep

sys.path.insert(0, str(Path(__file__).parent))
import digits


def show_stages(step: nova.Compiled) -> None:
    """Size, time and the first telling lines of every stage."""
    details = {
        "plan": ("the frozen linear program", "slot["),
        "nova": ("the nova dialect of MLIR", '"nova.'),
        "linalg": ("loops over tensors, fused", "linalg.generic"),
        "kernels": ("groups of ops, one function each", "call @"),
        "buffers": ("memory for every value, planned", "memref.view"),
        "loops": ("tiled and vectorized loops", "vector."),
        "llvm": ("the LLVM dialect", "llvm.func"),
        "ll": ("LLVM IR", "define"),
        "object": ("machine code", ""),
        "artifact": ("one file: code, tables, texts", ""),
    }
    for stage, (description, telling) in details.items():
        metrics = step.metrics.get(stage)
        took = f"{metrics['seconds'] * 1e3:7.1f} ms" if metrics else "  from cache"
        size = metrics["bytes"] if metrics else len(step.stages.get(stage, ""))
        print(f"  {stage:<9} {description:<34} {size:>8,} bytes {took}")
        lines = [line for line in step.stages.get(stage, "").splitlines() if telling in line]
        for line in lines[:2] if telling else []:
            line = line.partition("    #")[0].strip()
            print(f"      {line if len(line) <= 90 else line[:89] + '…'}")
    print(f"  {len(step.kernels)} kernels, {step.workspace_size:,} bytes of workspace")


def train(step: TrainStep, batches: Batches, epochs: int) -> History:
    """Train, a line now and then."""

    def report(epoch: int, history: History) -> None:
        if epoch % (epochs // 5) == 0 or epoch == epochs - 1:
            print(f"  epoch {epoch:3d}   loss {history.epoch_losses[-1]:.4f}")

    started = time.perf_counter()
    history = nova.fit(step, batches, epochs, progress="off", on_epoch=report)
    seconds, steps = time.perf_counter() - started, epochs * len(batches)
    print(f"  {steps} steps in {seconds:.2f} s, {seconds / steps * 1e6:,.0f} µs a step")
    return history


def main(epochs: int = digits.EPOCHS) -> None:
    images, labels, test_images, test_labels = digits.load_data()
    model = digits.make_model()
    batches = Batches(images, labels, batch_size=digits.BATCH)
    step = digits.make_step(model, epochs * len(batches))

    print("1. Compile one training step (forward, backward, update)")
    # The demo shows the compile itself, so it does not take the program from the disk cache.
    with nova.knobs.override(cache=False):
        started = time.perf_counter()
        compiled = step.lower(images[: digits.BATCH], labels[: digits.BATCH])
        seconds = time.perf_counter() - started
    show_stages(compiled)
    print(f"  compiled for {compiled.target} in {seconds:.2f} s (MLIR and LLVM loaded)")

    print("\n2. Train: every run updates the parameters in place")
    history = train(step, batches, epochs)
    if not history.epoch_losses[-1] < history.epoch_losses[0] / 3:
        raise SystemExit("the loss did not fall")

    print("\n3. Read digits it has never seen")
    share = digits.accuracy(model, test_images, test_labels)
    print(f"  accuracy {share:.1%} on {len(test_labels)} test images")

    print("\n4. Save the trained model, load it again")
    image = nova.tensor(test_images, name="images")
    model.eval()
    predict = nova.compile(nova.softmax(model(image)), inputs=[image])
    path = digits.PROGRAM
    predict.save(path)
    model.save(digits.WEIGHTS)
    before = predict.run([test_images])
    after = nova.load(path).run([test_images])
    if not np.array_equal(before, after):
        raise SystemExit("the loaded model computes something else")
    print(f"  {path}: {path.stat().st_size:,} bytes, weights inside")
    print("  loaded again, it gives the same numbers, bit for bit")


if __name__ == "__main__":
    main()
