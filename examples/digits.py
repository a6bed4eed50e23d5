"""Hand-written digits with an MLP: an accuracy of over 97 % on digits that it has not seen.

The data set is the one bundled with scikit-learn: 1,797 real images of 8x8 pixels. A run trains
with one compiled program per step, and saves the weights and a program that reads digits.

    python examples/digits.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import nova
from nova import nn, optim
from nova.data import Batches
from nova.train.step import TrainStep

EPOCHS, BATCH = 80, 64
WEIGHTS, PROGRAM = Path("digits.safetensors"), Path("digits.nova")  # in the current folder


def load_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, and a fifth of the data held back for the test."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], labels[order].astype(np.int64)
    held_back = len(images) // 5
    return images[held_back:], labels[held_back:], images[:held_back], labels[:held_back]


def make_model() -> nn.Sequential:
    nn.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.5),
        nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.5),
        nn.Linear(256, 10),
    )  # fmt: skip


def make_step(model: nn.Module, steps: int) -> TrainStep:
    """Forward, backward and AdamW under a falling rate: one program."""
    rate = optim.CosineAnnealing(3e-3, steps)
    optimizer = optim.AdamW(model.parameters(), lr=rate, weight_decay=0.1)
    return nova.train_step(model, lambda m, x, y: nova.cross_entropy(m(x), y), optimizer)


def accuracy(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of images that the model reads right."""
    model.eval()
    scores = model(images).numpy()
    model.train()
    return float((scores.argmax(axis=1) == labels).mean())


def main(epochs: int = EPOCHS) -> float:
    images, labels, test_images, test_labels = load_data()
    model = make_model()
    batches = Batches(images, labels, batch_size=BATCH)
    step = make_step(model, epochs * len(batches))
    history = nova.fit(step, batches, epochs)
    print(history)
    share = accuracy(model, test_images, test_labels)
    print(f"accuracy {share:.1%} on {len(test_labels)} test images")

    model.save(WEIGHTS)
    image = nova.tensor(test_images, name="images")
    model.eval()
    program = nova.compile(nova.softmax(model(image)), inputs=[image])
    program.save(PROGRAM)
    print(f"saved {WEIGHTS} and {PROGRAM}")
    return share


if __name__ == "__main__":
    main()
