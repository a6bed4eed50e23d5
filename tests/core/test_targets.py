"""Target strings: what they resolve to, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from nova.compiler.gpu.emit_ptx import compile_ptx
from nova.core.targets import DEVICES, NAMES, llvm_cpu, parse_target
from nova.errors import TargetError


@pytest.mark.parametrize("name", NAMES)
def test_every_name_resolves_once(name):
    target = parse_target(name)
    assert target is parse_target(name)
    assert target.name == name
    assert target.vector_bits in (128, 256, 512)
    assert 0 < target.l1_bytes <= target.l2_bytes
    assert llvm_cpu(target)


def test_levels_differ_in_what_schedules_use():
    base, v3, v4, arm = (parse_target(n) for n in ("x86_64", "x86_64-v3", "x86_64-v4", "aarch64"))
    assert (base.vector_bits, v3.vector_bits, v4.vector_bits, arm.vector_bits) == (
        128,
        256,
        512,
        128,
    )
    assert not base.has_fma and not base.has_f16c and not base.native_rounding
    assert all(t.has_fma and t.has_f16c and t.native_rounding for t in (v3, v4, arm))
    assert v4.native_scale and not any(t.native_scale for t in (base, v3, arm))
    assert v3.lanes(32) == 8
    assert "+avx2" in v3.llvm_features().split(",")


def test_key_follows_what_code_depends_on():
    keys = {parse_target(name).key() for name in NAMES}
    assert len(keys) == len(NAMES)
    v3 = parse_target("x86_64-v3")
    assert v3.key() == replace(v3).key()
    assert v3.key() != replace(v3, l2_bytes=v3.l2_bytes * 2).key()
    assert v3.key() != replace(v3, features=v3.features[1:]).key()


@pytest.mark.parametrize("text", DEVICES)
def test_llvm_has_every_device(text):
    target = parse_target(text)
    assert target.is_device and target.name == text
    ptx = compile_ptx("define ptx_kernel void @k() { ret void }", target)
    assert f".target {target.cpu}" in ptx and ".visible .entry k()" in ptx


@pytest.mark.parametrize(
    "text,suggestion",
    [
        ("x86-64-v3", "x86_64-v3"),
        ("CPU", "cpu"),
        ("arm64", None),
        ("", None),
        ("cuda:80", "cuda:sm_80"),
    ],
)
def test_unknown_targets_say_what_was_meant(text, suggestion):
    with pytest.raises(TargetError) as caught:
        parse_target(text)
    assert "unknown target" in caught.value.what
    assert "targets: cpu" in caught.value.hint
    if suggestion:
        assert f"did you mean {suggestion!r}" in caught.value.hint


def test_host_is_resolved_without_loading_a_compiler():
    program = (
        "import sys, nova.core.targets; nova.core.targets.parse_target('cpu'); "
        "print([m for m in sys.modules if m.split('.')[0] in ('llvmlite', 'torch_mlir')])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == "[]"
