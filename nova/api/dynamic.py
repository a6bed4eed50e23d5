"""The symbolic sizes of a jitted function's arguments: marked by the user, or learned from calls.

In: `dynamic=` of `nova.jit`, and the types of each call's arguments. Out: the types that the
program is compiled for, with symbolic sizes. Called by `jit.py`.

A learned axis becomes symbolic with the second size that is seen on it. Axes that had equal sizes
in all calls so far share a symbol. Sizes 0 and 1 are specialised, as in `torch.compile`: they keep
programs of their own, so a learned symbol is 2 or more. A function that needs more, such as a
convolution without padding, gets a program for the sizes from the smallest seen so far.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from itertools import groupby
from threading import Lock
from typing import Any, TypeVar

from nova.api.jit_arguments import call_signature
from nova.core.dtypes import TensorType
from nova.core.location import user_location
from nova.core.log import log
from nova.core.sizes import Dim, SizeExpr, dim, size_of
from nova.core.sizes.binding import bind_sizes
from nova.errors import AttributeValueError, NovaError, SymbolicSizeError

Leaves = tuple[tuple[TensorType, bool], ...]
Marks = Mapping[str, Mapping[int, SizeExpr]]
Axis = tuple[int, int]  # the number of a leaf, and of its axis

_LEAST_LEARNED = 2
_T = TypeVar("_T")


def read_dynamic(dynamic: Any) -> Marks | bool:
    """The value of `dynamic=`: marks by argument and axis, or whether axes are learned."""
    if dynamic is None or isinstance(dynamic, bool):
        return dynamic is None or dynamic
    if not isinstance(dynamic, Mapping):
        raise _bad_marks(f"dynamic is a {type(dynamic).__name__}")
    marks: dict[str, dict[int, SizeExpr]] = {}
    for name, axes in dynamic.items():
        if not isinstance(name, str) or not isinstance(axes, Mapping):
            raise _bad_marks(f"dynamic has {name!r}: {axes!r}")
        marks[name] = {}
        for axis, size in axes.items():
            if type(axis) is not int or not isinstance(size, str | SizeExpr):
                raise _bad_marks(f"dynamic marks axis {axis!r} of {name!r} with {size!r}")
            marks[name][axis] = dim(size) if isinstance(size, str) else size
    return marks


def _bad_marks(message: str) -> AttributeValueError:
    return AttributeValueError(
        message,
        where=str(user_location()),
        hint='True learns the axes; {"x": {0: "B"}} marks axis 0 of x, by a name or a nova.dim',
    )


class _Seen:
    """The sizes of calls whose arguments differ in sizes only."""

    def __init__(self, sizes: Mapping[Axis, int]):
        self.last = dict(sizes)
        self.varying: dict[Axis, int] = {}  # with the size that each had before it changed
        self.classes = dict(sizes)  # axes of one class had equal sizes in all calls
        self.smallest = dict(sizes)
        self.least: dict[Axis, int] = {}  # sizes that symbolic programs take at least
        self.refused = ""  # why these arguments keep static sizes

    def add(self, sizes: Mapping[Axis, int]) -> None:
        pairs = {axis: (self.classes[axis], size) for axis, size in sizes.items()}
        numbers = {pair: i for i, pair in enumerate(dict.fromkeys(pairs.values()))}
        for axis, size in sizes.items():
            before = self.last[axis]
            if min(size, before) >= _LEAST_LEARNED:
                self.classes[axis] = numbers[pairs[axis]]
                if size != before:
                    self.varying.setdefault(axis, before)
            if size >= _LEAST_LEARNED:
                self.last[axis] = size
                self.smallest[axis] = min(size, max(self.smallest[axis], _LEAST_LEARNED))


class DynamicAxes:
    """Gives the arguments of calls symbolic sizes."""

    def __init__(self, marks: Marks | bool, function: Callable[..., Any]):
        self._marks = marks
        self._parameters = _positional_names(function)
        self._seen: dict[Any, _Seen] = {}
        self._lock = Lock()

    def find(
        self, key: Any, names: Sequence[str], leaves: Leaves, find: Callable[[Leaves], _T]
    ) -> _T:
        """The program that `find` gives for the types, with symbolic sizes where axes are dynamic.

        Learned arguments stay static if their symbolic program does not compile; a mistake of the
        user is then raised again by the static one.
        """
        symbolic = self.generalize(key, names, leaves)
        if self._marks is not True or symbolic == leaves:
            return find(symbolic)
        try:
            return find(symbolic)
        except NovaError as error:
            if isinstance(error, SymbolicSizeError) and self._raise_least(key, leaves):
                return self.find(key, names, leaves, find)
            self._refuse(key, leaves, error)
            return find(leaves)

    def generalize(self, key: Any, names: Sequence[str], leaves: Leaves) -> Leaves:
        """The types with symbolic sizes; `key` is what else identifies the arguments."""
        if self._marks is False:
            return leaves
        names = [self.public_name(name) for name in names]
        if isinstance(self._marks, Mapping):
            return self._marked(self._marks, names, leaves)
        return self._learned(self._learn(key, leaves), names, leaves)

    def _raise_least(self, key: Any, leaves: Leaves) -> bool:
        """Let symbols start at the smallest sizes of the calls so far; whether that is new."""
        with self._lock:
            seen = self._seen[_signature(key, leaves)]
            if seen.least:
                return False
            seen.least = dict(seen.smallest)
            return True

    def _refuse(self, key: Any, leaves: Leaves, error: NovaError) -> None:
        log("compile", f"sizes are static: {error.what}")
        with self._lock:
            self._seen[_signature(key, leaves)].refused = error.what

    def explain(self, key: Any, names: Sequence[str], leaves: Leaves) -> str:
        """Which axes of the arguments are symbolic and why, for `explain`."""
        seen = self._seen.get(_signature(key, leaves))
        if seen is None:
            return ""
        if seen.refused:
            return f"sizes are static: {seen.refused}"
        public = [self.public_name(name) for name in names]
        texts = []
        for leaf, axis in sorted(seen.varying):
            size = leaves[leaf][0].shape[axis]
            if isinstance(size, SizeExpr):
                texts.append(
                    f"axis {axis} of {public[leaf]} was {seen.varying[leaf, axis]} and "
                    f"{seen.last[leaf, axis]}: it is symbolic now, {size}"
                )
        return "; ".join(texts)

    # --- learned --------------------------------------------------------------------------------

    def _learn(self, key: Any, leaves: Leaves) -> _Seen:
        sizes = {
            (i, axis): n
            for i, (type_, _) in enumerate(leaves)
            for axis, n in enumerate(type_.shape)
        }
        with self._lock:
            seen = self._seen.setdefault(_signature(key, leaves), _Seen(sizes))
            seen.add(sizes)
            return seen

    def _learned(self, seen: _Seen, names: Sequence[str], leaves: Leaves) -> Leaves:
        if not seen.varying or seen.refused:
            return leaves
        symbols: dict[Axis, SizeExpr] = {}
        by_class = sorted(seen.varying, key=lambda axis: (seen.classes[axis], axis))
        for _, axes in groupby(by_class, key=lambda axis: seen.classes[axis]):
            members = list(axes)
            leaf, axis = members[0]
            name = re.sub(r"\W", "_", f"{names[leaf]}_{axis}")
            least = min(seen.least.get(member, _LEAST_LEARNED) for member in members)
            if leaves[leaf][0].shape[axis] >= least:
                symbols.update(dict.fromkeys(members, size_of(Dim(name, least))))
        return tuple(
            (
                type_.with_shape(
                    [
                        symbols.get((i, axis), n) if n >= _LEAST_LEARNED else n
                        for axis, n in enumerate(type_.shape)
                    ]
                ),
                number,
            )
            for i, (type_, number) in enumerate(leaves)
        )

    # --- marked ---------------------------------------------------------------------------------

    def _marked(self, marks: Marks, names: Sequence[str], leaves: Leaves) -> Leaves:
        for name in marks.keys() - set(names):
            raise AttributeValueError(
                f"dynamic marks {name!r}, which is not an argument of the call",
                where=str(user_location()),
                hint=f"its arguments are {', '.join(names)}",
            )
        result = []
        for name, (type_, number) in zip(names, leaves, strict=True):
            shape = list(type_.shape)
            for axis, size in marks.get(name, {}).items():
                if not -len(shape) <= axis < len(shape):
                    raise AttributeValueError(
                        f"dynamic marks axis {axis} of {name!r}, which is {type_}",
                        where=str(user_location()),
                    )
                shape[axis] = size
            result.append((type_.with_shape(shape), number))
        try:
            bind_sizes(
                [
                    (name, symbolic.shape, actual.shape)
                    for name, (symbolic, _), (actual, _) in zip(names, result, leaves, strict=True)
                ]
            )
        except NovaError as error:
            raise error.located(str(user_location())) from None
        return tuple(result)

    def public_name(self, name: str) -> str:
        """`x0.weight` with the name of the parameter: `params.weight`."""
        head, dot, tail = name.partition(".")
        return self._parameters.get(head, head) + dot + tail


def _signature(key: Any, leaves: Leaves) -> Any:
    return key, tuple((type_.dtype, type_.rank, number) for type_, number in leaves)


def _positional_names(function: Callable[..., Any]) -> dict[str, str]:
    """The names of positional parameters by the names that the leaves of a call have."""
    try:
        parameters = list(call_signature(function).parameters.values())
    except (TypeError, ValueError):
        return {}
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return {f"x{i}": p.name for i, p in enumerate(parameters) if p.kind in positional}
