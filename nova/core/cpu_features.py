"""The CPU features that Nova knows, by LLVM's names: `targets`, `cpus` and tests read it.

A feature that is not listed here is never passed to LLVM, whatever the processor has: generated
code uses only features that a file lists and the loader checks. native/src/loader/cpu_features.c
has the same names.
"""

from __future__ import annotations

# LLVM feature -> the word in /proc/cpuinfo.
_X86_FLAGS = {
    "sse3": "pni",
    "ssse3": "ssse3",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "sse4a": "sse4a",
    "popcnt": "popcnt",
    "cx16": "cx16",
    "sahf": "lahf_lm",
    "movbe": "movbe",
    "aes": "aes",
    "pclmul": "pclmulqdq",
    "avx": "avx",
    "f16c": "f16c",
    "fma": "fma",
    "avx2": "avx2",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "lzcnt": "abm",
    "adx": "adx",
    "sha": "sha_ni",
    "gfni": "gfni",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "avxvnni": "avx_vnni",
    "avx512f": "avx512f",
    "avx512cd": "avx512cd",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}
_ARM_FLAGS = {
    "neon": "asimd",
    "fullfp16": "asimdhp",
    "dotprod": "asimddp",
    "lse": "atomics",
    "aes": "aes",
    "sha2": "sha2",
    "crc": "crc32",
    "bf16": "bf16",
    "i8mm": "i8mm",
}

FLAGS = {"x86_64": _X86_FLAGS, "aarch64": _ARM_FLAGS}
"""By architecture."""

# Architecture -> LLVM's name of a processor with the baseline only. Code is generated for it plus
# the listed features; the name of the target's processor decides only scheduling and costs.
BASES = {"x86_64": "x86-64", "aarch64": "generic"}

# Features that LLVM's inliner ignores, so `cpu_probe` cannot query them: each is present if
# the other one is, by the levels of the x86-64 ABI.
UNPROBED = {"cx16": "sse4.2", "sahf": "sse4.2"}
