"""Large results of torch programs are in memory that the system may back with huge pages."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch

from nova.api.torch_backend.huge_pages import LARGE


def flags_at(address: int) -> list[str]:
    """The flags of the mapping that has an address."""
    flags, inside = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, *words = line.split()
        if "-" in name and not name.endswith(":"):
            first, last = (int(end, 16) for end in name.split("-"))
            inside = first <= address < last
        elif inside and name == "VmFlags:":
            flags = words
    return flags


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="needs Linux")
def test_large_results_are_right_and_advised():
    program = torch.compile(lambda a: a * 2 + 1, backend="nova", fullgraph=True)
    x = torch.arange(LARGE // 4, dtype=torch.float32)
    result = program(x)
    assert torch.equal(result, x * 2 + 1)
    assert "hg" in flags_at(result.data_ptr() + LARGE // 2)


def test_large_results_with_gaps():
    """The copy with the strides of the graph is large, too."""
    x = torch.rand(LARGE // 16, 8)[:, ::2]
    program = torch.compile(lambda a: torch.relu(a).t(), backend="nova", fullgraph=True)
    assert torch.equal(program(x), torch.relu(x).t())
