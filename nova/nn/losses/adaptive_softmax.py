"""`AdaptiveLogSoftmaxWithLoss`: classes in clusters by their frequency (Grave et al., 2017).

The first cluster (the head) has the frequent classes and one entry for each further cluster. Those
have a projection to fewer features. All clusters are computed for all rows, and each row takes the
value of its own: a program has static shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nova.core.location import user_location
from nova.errors import AttributeValueError, ShapeError
from nova.graph import Tensor
from nova.nn.containers import ModuleList, Sequential
from nova.nn.layers import Linear, sizes
from nova.nn.module import Module
from nova.ops import F


class ASMOutput(NamedTuple):
    """The log probability of the target of each row, and the mean of their negatives."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log probabilities of targets, with clusters that start at the classes `cutoffs`."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        *,
        dtype: Any = "f32",
        generator: np.random.Generator | None = None,
    ):
        sizes("AdaptiveLogSoftmaxWithLoss", (in_features, n_classes))
        bounds = list(cutoffs)
        is_sorted = bounds == sorted(set(bounds)) and bounds and bounds[0] > 0
        if not is_sorted or bounds[-1] > n_classes - 1:
            raise AttributeValueError(
                f"AdaptiveLogSoftmaxWithLoss: cutoffs {bounds} for {n_classes} classes",
                where=str(user_location()),
                hint="they ascend from 1 or more to the number of classes less 1, each once",
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs, self.div_value, self.head_bias = [*bounds, n_classes], div_value, head_bias
        self.shortlist_size, self.n_clusters = bounds[0], len(bounds)
        self.head_size = self.shortlist_size + self.n_clusters
        options: dict[str, Any] = {"dtype": dtype, "generator": generator}
        self.head = Linear(in_features, self.head_size, head_bias, **options)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            count = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, width, False, **options),
                    Linear(width, count, False, **options),
                )
            )

    def forward(self, x: Any, target: Any) -> ASMOutput:
        """The log probabilities of the targets of rows, (N,) for x (N, features), and the loss."""
        rows = len(x.shape) - 1
        if rows not in (0, 1) or len(target.shape) != rows or x.shape[:-1] != target.shape:
            raise ShapeError(
                f"AdaptiveLogSoftmaxWithLoss: x {x.shape} and targets {target.shape}",
                where=str(user_location()),
                hint="x is (N, features) with targets (N), or (features) with one target",
            )
        log_probabilities = self.log_prob(x if rows else F.unsqueeze(x, 0))
        place = F.reshape(target, (-1, 1))
        output = F.squeeze(F.gather(log_probabilities, place, axis=1), 1)
        output = output if rows else F.squeeze(output, 0)
        return ASMOutput(output, -F.mean(output))

    def log_prob(self, x: Any) -> Tensor:
        """The log probabilities of all classes, (N, n_classes)."""
        head = F.log_softmax(self.head(x), axis=1)
        short = self.shortlist_size
        parts = [F.narrow(head, 1, 0, short)]
        for i, cluster in enumerate(self.tail):
            parts.append(F.log_softmax(cluster(x), axis=1) + F.narrow(head, 1, short + i, 1))
        return F.concat(parts, axis=1)

    def predict(self, x: Any) -> Tensor:
        """The most probable class of each row."""
        return F.argmax(self.log_prob(x), axis=1)
