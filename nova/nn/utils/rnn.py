"""Sequences of different lengths for recurrent layers, with the names of torch.nn.utils.rnn.

In: padded sequences and their lengths. Out: a `PackedSequence`, which `nn.RNN`, `nn.LSTM` and
`nn.GRU` take and return. Sizes of a program are static, so nothing is moved together: the data stay
padded as (time, batch, ...), 0 beyond the lengths, in the order of the batch. Lengths that are
numbers (a list, an array) are checked when the graph is built; those of a Tensor may be known only
when the program runs, where a length of 0 keeps the initial state, and one beyond the padding is
the whole sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nova.core.dtypes import i64
from nova.core.location import user_location
from nova.core.user_facing import user_facing, user_facing_class
from nova.errors import AttributeValueError, DTypeError, ShapeError
from nova.graph import Tensor, tensor
from nova.graph.tensor import as_array
from nova.nn.parameter import has_values
from nova.ops import F

__all__ = [
    "PackedSequence",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


@user_facing_class
class PackedSequence:
    """Padded data (time, batch, ...) and the length of each sequence.

    torch's has the elements of all sequences one after the other, and the size of the batch at each
    step. `with_data` is the way to compute on the elements.
    """

    def __init__(self, data: Any, *, lengths: Any):
        data = data if isinstance(data, Tensor) else tensor(data)
        if len(data.shape) < 2:
            raise ShapeError(
                f"PackedSequence: data {data.shape} is not (time, batch, ...)",
                where=str(user_location()),
            )
        self.lengths, numbers = _lengths("PackedSequence", lengths, *data.shape[:2])
        self._is_full = not isinstance(lengths, Tensor) and all(
            length == data.shape[0] for length in numbers or ()
        )
        self.data = self._cleared(data)

    @property
    def mask(self) -> Tensor | None:
        """(time, batch): which elements are inside of the sequences; None where all are."""
        return self._mask(self.data.shape[0])

    def _mask(self, steps: Any) -> Tensor | None:
        return None if self._is_full else F.unsqueeze(F.arange(steps), 1) < self.lengths

    def with_data(self, data: Tensor) -> PackedSequence:
        """Other data of the same sequences: `packed.with_data(embedding(packed.data))`."""
        if len(data.shape) < 2 or tuple(data.shape[:2]) != tuple(self.data.shape[:2]):
            raise ShapeError(
                f"PackedSequence: data {data.shape} replace data {self.data.shape}",
                where=str(user_location()),
                hint="time and batch do not change",
            )
        changed = object.__new__(type(self))
        changed.lengths, changed._is_full = self.lengths, self._is_full
        changed.data = self._cleared(data)
        return changed

    def _cleared(self, data: Tensor, value: float = 0) -> Tensor:
        """`value` beyond the lengths: what is there, be it NaN, reaches no result and gradient."""
        mask = self._mask(data.shape[0])
        if mask is None:
            return data
        mask = F.reshape(mask, (*data.shape[:2], *(1,) * (len(data.shape) - 2)))
        return F.where(mask, data, F.full(shape=(), value=value, dtype=data.dtype))

    def padded(self, value: float) -> Tensor:
        """The data with `value` beyond the lengths."""
        return self.data if value == 0 else self._cleared(self.data, value)

    def __repr__(self) -> str:
        return f"<PackedSequence {self.data.type} of {self.lengths.shape[0]} sequences>"


@user_facing
def pack_padded_sequence(
    x: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """The sequences of `x`, (time, batch, ...), or (batch, time, ...) with `batch_first`.

    Lengths that are numbers end the data at the longest sequence. With `enforce_sorted` they must
    not ascend, as in torch; results are in the order of the batch either way.
    """
    name = "pack_padded_sequence"
    x = x if isinstance(x, Tensor) else tensor(x)
    if len(x.shape) < 2:
        raise ShapeError(
            f"{name}: {x.shape} has no axes of time and batch", where=str(user_location())
        )
    x = F.swapaxes(x, 0, 1) if batch_first else x
    _, numbers = _lengths(name, lengths, *x.shape[:2])
    if enforce_sorted and numbers is not None and any(np.diff(numbers) > 0):
        raise AttributeValueError(
            f"{name}: the lengths {_listed(numbers)} are not in descending order",
            where=str(user_location()),
            hint="pass enforce_sorted=False",
        )
    if numbers and not isinstance(lengths, Tensor):
        x = x[: max(numbers)]
    return PackedSequence(x, lengths=lengths)


@user_facing
def pad_packed_sequence(
    packed: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded data, with `padding_value` beyond the lengths, and the lengths as i64.

    They are as long as the longest sequence, or `total_length`; if lengths are known only when the
    program runs, as long as what was packed.
    """
    name = "pad_packed_sequence"
    if not isinstance(packed, PackedSequence):
        raise DTypeError(
            f"{name}: {type(packed).__name__} is not a PackedSequence",
            where=str(user_location()),
            hint="pack_padded_sequence(x, lengths) makes one",
        )
    x = packed.padded(padding_value)
    if total_length is not None:
        missing = total_length - x.shape[0]
        if missing < 0:
            raise AttributeValueError(
                f"{name}: total_length is {total_length}, the data have {x.shape[0]} steps",
                where=str(user_location()),
                hint="it is at least the size of the data",
            )
        if missing:
            rest = F.full(shape=(missing, *x.shape[1:]), value=padding_value, dtype=x.dtype)
            x = F.concat([x, rest], axis=0)
    return (F.swapaxes(x, 0, 1) if batch_first else x), packed.lengths


def _lengths(name: str, lengths: Any, steps: Any, batch: Any) -> tuple[Tensor, list[int] | None]:
    """The lengths as a tensor of i64, and as numbers where they are known."""
    is_tensor = isinstance(lengths, Tensor)
    array = lengths.data if is_tensor else as_array(lengths)
    value = lengths if is_tensor else tensor(array)
    if not value.dtype.is_integer:
        raise DTypeError(
            f"{name}: lengths are {value.dtype}, not integers", where=str(user_location())
        )
    if tuple(value.shape) != (batch,):
        raise ShapeError(
            f"{name}: lengths of shape {value.shape} for a batch of {batch}",
            where=str(user_location()),
            hint="pass one length for each sequence",
        )
    numbers = None if array is None else [int(number) for number in as_array(array)]
    for number in numbers or ():
        if number < 1 or (isinstance(steps, int) and number > steps):
            raise AttributeValueError(
                f"{name}: a length of {number} in {_listed(numbers)}",
                where=str(user_location()),
                hint=f"a sequence has 1 to {steps} elements",
            )
    return F.cast(value, dtype=i64), numbers


def _listed(numbers: list[int] | None) -> str:
    text = ", ".join(map(str, (numbers or [])[:10]))
    return f"({text}{', ...' if len(numbers or ()) > 10 else ''})"


@user_facing
def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (length, ...) as one tensor (time, batch, ...), with `padding_value` at the ends.

    With `batch_first` it is (batch, time, ...); `padding_side` is "right" or "left".
    """
    parts = _sequences("pad_sequence", sequences)
    if padding_side not in ("right", "left"):
        raise AttributeValueError(
            f"pad_sequence: padding_side {padding_side!r}",
            where=str(user_location()),
            hint="it is right or left",
        )
    steps = max(part.shape[0] for part in parts)
    padded = []
    for part in parts:
        missing = (steps - part.shape[0], *(0,) * (len(part.shape) - 1))
        none = (0,) * len(part.shape)
        ends = (none, missing) if padding_side == "right" else (missing, none)
        padded.append(F.pad(part, *ends, value=padding_value))
    return F.stack(padded, axis=0 if batch_first else 1)


@user_facing
def unpad_sequence(padded: Any, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of padded data, each with its length; lengths are numbers."""
    x = padded if isinstance(padded, Tensor) else tensor(padded)
    if len(x.shape) < 2:
        raise ShapeError(
            f"unpad_sequence: {x.shape} has no axes of time and batch", where=str(user_location())
        )
    x = x if batch_first else F.swapaxes(x, 0, 1)
    if isinstance(lengths, Tensor) and has_values(lengths):
        lengths = lengths.numpy()
    _, numbers = _lengths("unpad_sequence", lengths, x.shape[1], x.shape[0])
    if numbers is None:
        raise AttributeValueError(
            "unpad_sequence: lengths are known only when the program runs",
            where=str(user_location()),
            hint="pass them as a list: sizes of a program are static",
        )
    return [x[i, :n] for i, n in enumerate(numbers)]


@user_facing
def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Sequences (length, ...) of different lengths, packed."""
    parts = _sequences("pack_sequence", sequences)
    lengths = [part.shape[0] for part in parts]
    return pack_padded_sequence(pad_sequence(parts), lengths, enforce_sorted=enforce_sorted)


@user_facing
def unpack_sequence(packed: PackedSequence) -> list[Tensor]:
    """The sequences of a `PackedSequence`, each with its length."""
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def _sequences(name: str, sequences: Any) -> list[Tensor]:
    parts = [s if isinstance(s, Tensor) else tensor(s) for s in sequences]
    shapes = {tuple(part.shape[1:]) for part in parts}
    if not parts or len(shapes) != 1 or any(not part.shape for part in parts):
        raise ShapeError(
            f"{name}: sequences of {[tuple(p.shape) for p in parts]}",
            where=str(user_location()),
            hint="they are (length, ...) with equal axes after the first",
        )
    return parts
