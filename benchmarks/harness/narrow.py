"""A run on a wider machine as if it had AVX2 only: `run.py --avx2`.

Each library has its own way to be held to AVX2; one that has none is left out of such a run.
"""

from __future__ import annotations

VARIABLES = {
    "NOVA_TARGET": "x86_64-v3",
    "OPENBLAS_CORETYPE": "HASWELL",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",  # torch's own kernels and those of torch.compile
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    "BENCH_IREE_CPU": "x86-64-v3",
}

NOT_HELD = ("onnxruntime",)
"""Chooses its kernels by what the CPU has, whatever it is told."""
