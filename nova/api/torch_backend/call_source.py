"""The Python function of a call: source text for one program, without loops or branches.

A call of a small program costs less than a microsecond of work, so the steps that are known at
compile time (which arguments are copied, the sizes and strides of results, views) are written out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

_empty_on_cpu = torch._C._dynamo.guards._empty_strided_cpu


@dataclass(frozen=True)
class Allocation:
    """A new tensor: its strides, and those it is written with if they differ (it has gaps)."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    packed: tuple[int, ...]
    dtype: torch.dtype

    @property
    def has_gaps(self) -> bool:
        pairs = zip(self.size, self.strides, self.packed, strict=True)
        return 0 not in self.size and any(n != 1 and s != p for n, s, p in pairs)


@dataclass(frozen=True)
class View:
    """A view of another tensor; `offset` counts from its first element."""

    base: Any
    size: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass
class CallPlan:
    """The steps of a call.

    argument_count  of the graph.
    order           arguments of the program: positions, a tensor, or "seeds".
    copied          positions of arguments that are made contiguous first.
    resolved        positions of arguments that may be conjugate or negative views.
    copied_back     positions of arguments that get a result of the program, in order after
                    `allocations`, with their allocations.
    allocations     results of the program.
    results         of the graph: ("argument", i), ("output", i), a `View` of one, or a value.
    seed_count      numbers that a call draws from torch's generator.
    device          where results are allocated.
    """

    argument_count: int
    order: list[Any]
    copied: list[int]
    resolved: list[int]
    copied_back: list[tuple[int, Allocation]]
    allocations: list[Allocation]
    results: list[Any]
    seed_count: int
    run: Callable[[list[Any], list[Any]], None]
    device: torch.device
    names: dict[str, Any] = field(default_factory=dict)

    def function(self, boxed: bool) -> Callable[..., tuple[Any, ...]]:
        """The compiled function: of a list that it clears if `boxed`, else of the arguments."""
        empty = _empty_on_cpu if self.device.type == "cpu" else _empty_on(self.device)
        scope: dict[str, Any] = {"empty": empty, "run": self.run, "draw_seeds": draw_seeds}
        self.names = scope
        source = self._source(boxed)
        exec(compile(source, "<nova call>", "exec"), scope)
        function: Callable[..., tuple[Any, ...]] = scope["call"]
        return function

    def _source(self, boxed: bool) -> str:
        arguments = [f"a{i}" for i in range(self.argument_count)]
        lines = [f"def call({'args' if boxed else ', '.join(arguments)}):"]
        if boxed and arguments:
            lines += [f"    {', '.join(arguments)}, = args", "    args.clear()"]
        tensors = [self._tensor(entry) for entry in self.order]
        outputs = []
        for i, allocation in enumerate(self.allocations):
            outputs.append(f"o{i}")
            lines.append(f"    o{i} = {self._allocate(allocation, allocation.packed)}")
        for i, (_, allocation) in enumerate(self.copied_back):
            outputs.append(f"u{i}")
            lines.append(f"    u{i} = {self._allocate(allocation, allocation.packed)}")
        lines.append(f"    run([{', '.join(tensors)}], [{', '.join(outputs)}])")
        for i, allocation in enumerate(self.allocations):
            if allocation.has_gaps:
                gapped = self._allocate(allocation, allocation.strides)
                lines.append(f"    o{i} = {gapped}.copy_(o{i})")
        lines += [f"    a{p}.copy_(u{i})" for i, (p, _) in enumerate(self.copied_back)]
        results = [self._result(result) for result in self.results]
        lines.append(f"    return ({''.join(f'{r}, ' for r in results)})")
        return "\n".join(lines) + "\n"

    def _tensor(self, entry: Any) -> str:
        if entry == "seeds" and isinstance(entry, str):
            return f"draw_seeds({self.seed_count})"
        if isinstance(entry, int):
            lazy = ".resolve_conj().resolve_neg()" if entry in self.resolved else ""
            packed = ".contiguous()" if entry in self.copied else ""
            return f"a{entry}{lazy}{packed}"
        return self._name(entry)

    def _allocate(self, allocation: Allocation, strides: tuple[int, ...]) -> str:
        return f"empty({allocation.size}, {strides}, {self._name(allocation.dtype)})"

    def _result(self, result: Any) -> str:
        if isinstance(result, View):
            base = self._result(result.base)
            offset = f"{base}.storage_offset() + {result.offset}"
            return f"{base}.as_strided({result.size}, {result.strides}, {offset})"
        if isinstance(result, tuple) and result[0] == "argument":
            return f"a{result[1]}"
        if isinstance(result, tuple) and result[0] == "output":
            return f"o{result[1]}"
        return self._name(result)

    def _name(self, value: Any) -> str:
        """A name for a value in the scope of the function."""
        if value is None or type(value) in (bool, int):
            return repr(value)
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name


def _empty_on(device: torch.device) -> Callable[..., torch.Tensor]:
    """`torch.empty_strided` on a device: torch's own shortcut where no other one can be current."""
    if device.type == "cuda" and torch.cuda.device_count() == 1:
        shortcut: Callable[..., torch.Tensor] = torch._C._dynamo.guards._empty_strided_cuda
        return shortcut

    def empty(size: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(size, strides, dtype=dtype, device=device)

    return empty


def draw_seeds(count: int) -> torch.Tensor:
    """Seeds of one call, from torch's generator."""
    return torch.empty(count, dtype=torch.int64).random_()
