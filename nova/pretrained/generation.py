"""Programs that write tokens: prompt, KV cache and sampling loop in one program.

`Decoder` is the base of the models that write. `write_tokens` is the loop, for any object with
`caches`, `rows` and `scores`; `compile_generator` makes a program of it, `generate` runs one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple, Protocol

import numpy as np

from nova.api.compile import compile
from nova.api.compiled import Compiled
from nova.core.dtypes import DType, f32, i64
from nova.core.location import user_location
from nova.core.user_facing import user_facing
from nova.errors import AttributeValueError
from nova.graph import cond, fori_loop, input, while_loop
from nova.nn import Module
from nova.ops import F

Caches = list[tuple[Any, Any]]
"""The keys and values of each layer."""

# Prompts are read in chunks of at most this many tokens.
CHUNK = 32
_SMALLEST_CONTEXT = 64


class Sampling(NamedTuple):
    """How tokens are drawn: arrays, or tensors of a program.

    At temperature 0 it is the most likely one. `top_k` (0: all) limits it to that many tokens, then
    `top_p` to the fewest with that probability. The random numbers are a function of seed and
    position (Philox).
    """

    temperature: Any
    top_k: Any
    top_p: Any
    seed: Any


class Writer(Protocol):
    """A model, or a model with its encoder's results, that `write_tokens` runs."""

    width: int
    dtype: DType

    def caches(self, context: int) -> Caches: ...

    def rows(self, tokens: Any, start: Any, caches: Caches) -> tuple[Any, Caches]: ...

    def scores(self, x: Any) -> Any: ...


# --- sampling -------------------------------------------------------------------------------------


def sample(logits: Any, sampling: Sampling, position: Any) -> Any:
    """The token of a position, drawn by its logits."""
    temperature, top_k, top_p, seed = sampling

    def draw() -> Any:
        scaled = logits / temperature
        scaled = scaled - F.max(scaled)
        count = F.where(top_k > 0, top_k, logits.shape[0])
        least = _threshold(scaled, lambda chosen: F.sum(F.cast(chosen, dtype=i64)) >= count)
        weights = F.where(scaled >= least, F.exp(scaled), 0.0)
        mass = F.sum(weights) * top_p
        least = F.maximum(
            least, _threshold(scaled, lambda chosen: F.sum(F.where(chosen, weights, 0.0)) >= mass)
        )
        # The largest of the logits with Gumbel noise is a draw from their softmax.
        uniform = F.uniform(seed + position * (1 << 32), shape=logits.shape)
        noisy = scaled - F.log(-F.log(uniform))
        return F.argmax(F.where(scaled >= least, noisy, float("-inf")))

    return cond(temperature > 0, draw, lambda: F.argmax(logits))


def _threshold(values: Any, enough: Any) -> Any:
    """The largest bound for which the values that reach it are `enough`, by bisection.

    The largest value is 0. Values below -100 have no weight in f32. After 40 steps no other float
    is between the two ends.
    """

    def halve(_: Any, ends: Any) -> Any:
        low, high = ends
        middle = (low + high) / 2
        fits = enough(values >= middle)
        return F.where(fits, middle, low), F.where(fits, high, middle)

    return fori_loop(0, 40, halve, (np.float32(-100), np.float32(1e-6)))[0]


# --- the loop -------------------------------------------------------------------------------------


def read_prompt(
    model: Writer, tokens: Any, length: Any, caches: Caches, chunk: int
) -> tuple[Any, Caches]:
    """The last hidden row of a prompt and the caches, read `chunk` tokens at a time.

    The last chunk may end after the prompt. Its other rows are overwritten before a token may
    attend to them.
    """

    def read(state: Any) -> Any:
        start, _, caches = state
        part = F.dynamic_slice(tokens, (start,), (chunk,))
        rows, caches = model.rows(part, start, caches)
        last = F.minimum(length - 1 - start, chunk - 1)
        return start + chunk, F.dynamic_slice(rows, (last, 0), (1, model.width)), caches

    row = F.zeros((1, model.width), dtype=model.dtype)
    state = while_loop(lambda state: state[0] < length, read, (0, row, caches))
    return state[1], state[2]


def write_tokens(
    model: Writer, tokens: Any, length: Any, limit: Any, sampling: Sampling, stop: Any, chunk: int
) -> tuple[Any, Any]:
    """`tokens` with those after the prompt of `length` replaced by new ones, and their end.

    It ends at `limit` tokens or after a token `stop`. At least one token is drawn.
    """
    context = tokens.shape[0]
    row, caches = read_prompt(model, tokens, length, model.caches(context), chunk)
    token = sample(model.scores(row)[0], sampling, length)
    tokens = F.dynamic_update_slice(tokens, F.unsqueeze(token, 0), (length,))

    def write(state: Any) -> Any:
        count, token, tokens, caches = state
        row, caches = model.rows(F.unsqueeze(token, 0), count - 1, caches)
        token = sample(model.scores(row)[0], sampling, count)
        tokens = F.dynamic_update_slice(tokens, F.unsqueeze(token, 0), (count,))
        return count + 1, token, tokens, caches

    def goes_on(state: Any) -> Any:
        return (state[0] < F.minimum(limit, context)) & (state[1] != stop)

    state = while_loop(goes_on, write, (length + 1, token, tokens, caches))
    return state[2], state[0]


# --- programs -------------------------------------------------------------------------------------

_FLOATS = ("temperature", "top_p")
_SCALARS = ("length", "limit", "temperature", "top_k", "top_p", "seed", "stop")


def scalar_inputs() -> list[Any]:
    """The scalar inputs of a generator: length, limit, temperature, top_k, top_p, seed, stop."""
    return [input((), f32 if name in _FLOATS else i64, name=name) for name in _SCALARS]


def compile_generator(
    model: Decoder,
    context: int = 256,
    chunk: int = CHUNK,
    target: str | None = None,
    **options: Any,
) -> Compiled:
    """One program: tokens and how to go on -> tokens, and the position after the last.

    Its inputs are tokens, length, limit, temperature, top_k, top_p, seed and stop. `options` are
    other keywords of `compile`.
    """
    if context % chunk:
        raise AttributeValueError(
            f"a context of {context} is not a multiple of {chunk}", where=str(user_location())
        )
    tokens = input((context,), i64, name="tokens")
    scalars = scalar_inputs()
    length, limit, *sampling, stop = scalars
    outputs = write_tokens(model, tokens, length, limit, Sampling(*sampling), stop, chunk)
    params = list(model.parameters())
    inputs = [tokens, *scalars]
    return compile(list(outputs), inputs=inputs, params=params, target=target, **options)


@user_facing
def generate(
    program: Any,
    prompt: Sequence[int],
    new: int = 32,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: int = -1,
    before: Sequence[Any] = (),
) -> list[int]:
    """The tokens that a compiled or loaded program writes after a prompt.

    `before` are inputs of the program before `tokens`.
    """
    context = program.signature.inputs[len(before)].shape[0]
    check_prompt(prompt, new)
    _check_sampling(temperature, top_k, top_p, seed, stop)
    if not 0 < len(prompt) < context:
        raise AttributeValueError(
            f"a prompt has 1 to {context - 1} tokens, not {len(prompt)}",
            where=str(user_location()),
        )
    tokens = np.zeros(context, np.int64)
    tokens[: len(prompt)] = prompt
    length = np.int64(len(prompt))
    sampling = np.float32(temperature), np.int64(top_k), np.float32(top_p), np.int64(seed)
    written, end = program.forward(*before, tokens, length, length + new, *sampling, np.int64(stop))
    return [int(t) for t in written[len(prompt) : int(end)]]


def check_prompt(prompt: Any, new: Any, vocabulary: int | None = None) -> None:
    """Refuse a prompt or a number of new tokens that the program would clamp, cut or round."""
    try:
        array = np.asarray(prompt)
    except ValueError:  # lists of different lengths
        array = np.empty((), object)
    wrong = hint = None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        wrong = f"the prompt is {type(prompt).__name__}, not a list of the numbers of tokens"
    elif not array.size:
        wrong = "the prompt has no token, and it needs one"
    elif array.min() < 0:
        wrong = f"the prompt has the token {array.min()}, and tokens are numbered from 0"
    elif vocabulary is not None and array.max() >= vocabulary:
        wrong = f"the prompt has token {array.max()}, and the vocabulary {vocabulary} tokens"
        hint = "use the tokenizer of the model"
    elif not _is_integer(new) or new < 1:
        wrong = f"{new!r} new tokens, and a program writes one or more"
    if wrong is not None:
        raise AttributeValueError(wrong, where=str(user_location()), hint=hint)


def _check_sampling(temperature: Any, top_k: Any, top_p: Any, seed: Any, stop: Any) -> None:
    """Refuse what the program would clamp or round."""
    wrong = None
    if not _is_number(temperature) or not 0 <= temperature < np.inf:
        wrong = f"temperature {temperature!r}, which is 0 (the most likely token) or more"
    elif not _is_integer(top_k) or top_k < 0:
        wrong = f"top_k {top_k!r}, which is a number of tokens, or 0 for all"
    elif not _is_number(top_p) or not 0 < top_p <= 1:
        wrong = f"top_p {top_p!r}, which is a probability above 0"
    elif not _is_integer(seed):
        wrong = f"seed {seed!r}, which is an integer"
    elif not _is_integer(stop):
        wrong = f"stop {stop!r}, which is the number of a token, or -1 for none"
    if wrong is not None:
        raise AttributeValueError(wrong, where=str(user_location()))


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_integer(value) or isinstance(value, float | np.floating)


def choose_context(needed: int, longest: int) -> int:
    """The context of a program for `needed` tokens: a power of two, so that few are compiled."""
    if needed > longest:
        raise AttributeValueError(
            f"the prompt and the new tokens are {needed}, and the model has {longest} positions",
            where=str(user_location()),
            hint="shorten the prompt, or ask for fewer tokens",
        )
    return min(max(_SMALLEST_CONTEXT, 1 << (needed - 1).bit_length()), longest)


class Decoder(Module):
    """A model that reads tokens and writes the next ones."""

    width: int
    longest: int
    vocabulary: int
    dtype: DType

    def caches(self, context: int) -> Caches:
        """Empty caches of one sequence."""
        raise NotImplementedError

    def rows(self, tokens: Any, start: Any, caches: Caches | None) -> tuple[Any, Caches]:
        """The hidden rows of tokens at positions from `start` on, and the caches with them."""
        raise NotImplementedError

    def scores(self, x: Any) -> Any:
        """The logits of hidden rows, in f32."""
        raise NotImplementedError

    def forward(self, tokens: Any) -> Any:
        """The logits of (..., tokens) sequences: (..., tokens, vocabulary), in f32."""
        return self.scores(self.rows(tokens, 0, None)[0])

    def empty_cache(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """The cache of one layer before the first token."""
        empty = F.zeros(shape, dtype=self.dtype)
        return empty, empty

    @user_facing
    def generate(
        self, prompt: Sequence[int], new: int = 32, *, context: int | None = None, **sampling: Any
    ) -> list[int]:
        """Up to `new` tokens after a prompt; `sampling` as in `generation.generate`.

        One program is compiled for each context, by default the power of two that has room.
        """
        check_prompt(prompt, new, self.vocabulary)
        needed = len(prompt) + new
        size = choose_context(needed, self.longest) if context is None else context
        if not _is_integer(size) or not needed <= size <= self.longest:
            raise AttributeValueError(
                f"context {size!r}: {len(prompt)} tokens of the prompt and {new} new ones need "
                f"{needed}, and the model has {self.longest} positions",
                where=str(user_location()),
            )
        programs: dict[int, Compiled] = vars(self).setdefault("_programs", {})
        if size not in programs:
            programs[size] = compile_generator(self, size, gcd(size, CHUNK))
        return generate(programs[size], prompt, new, **sampling)
