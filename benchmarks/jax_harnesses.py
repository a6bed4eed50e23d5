"""How many programs of jax's own lowering suite Nova imports, and whether it computes as jax does.

In: `jax._src.internal_test_util.test_harnesses`, about 5,600 uses of single primitives (it needs
the package absl-py). Each is exported for one device, translated, run and compared with jax.jit.
Out: counts of programs that pass, are refused by an error of Nova about the program, fail uncleanly
(a pass, LLVM, Python), or give wrong numbers; `--list` names the refused ones.

    python benchmarks/jax_harnesses.py --most 8 --list
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

import nova
from nova import errors

# An error about the program; others, of a pass or of LLVM, are faults of Nova.
_CLEAN = (errors.ImportedProgramError, errors.UnsupportedOpError, errors.EntryError)
_TOLERANCE = {2: 3e-2, 4: 2e-4, 8: 1e-9}
_SEED = 42
# Errors are relative to the largest element; signs of vectors are not defined.
_FACTORIZATIONS = ("cholesky", "eigh", "svd")
_FREE_SIGNS = ("eigh", "svd")


def all_harnesses(most: int, groups: Sequence[str] = ()) -> Iterator[Any]:
    """Harnesses that jax itself runs on a CPU, evenly spaced, at most `most` of each group."""
    # Imported late: jax registers its harnesses at import, and absl-py is optional.
    from jax._src.internal_test_util import test_harnesses

    by_group: dict[str, list[Any]] = defaultdict(list)
    for harness in test_harnesses.all_harnesses:
        limits = [
            limit
            for limit in harness.jax_unimplemented
            if limit.filter(device="cpu", dtype=harness.dtype)
        ]
        if not limits and (not groups or harness.group_name in groups):
            by_group[harness.group_name].append(harness)
    for group in by_group.values():
        # jax registers some of them in the order of sets, which differs from run to run.
        group.sort(key=lambda harness: str(harness.fullname))
        step = max(1, -(-len(group) // most)) if most else 1
        yield from group[::step]


def run_harness(harness: Any) -> tuple[str, str]:
    """The outcome of one program: pass, skip, refused, unclean or wrong; and the reason."""
    arguments = harness.dyn_args_maker(np.random.RandomState(_SEED))
    function = jax.jit(harness.dyn_fun)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = export.export(function)(*arguments)
            wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(function(*arguments))]
    except Exception as error:  # any error of jax: there is nothing to compare with
        return "skip", f"{type(error).__name__}: {error}"
    # jax drops arguments that the program does not use.
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    arrays = [arrays[i] for i in exported.module_kept_var_idx]
    try:
        results = nova.translate(exported.mlir_module()).load()(*arrays)
    except _CLEAN as error:
        return "refused", error.what
    except Exception as error:  # whatever it is: a program must not get here
        return "unclean", f"{type(error).__name__}: {error}"
    results = results if isinstance(results, tuple) else (results,)
    results = tuple(np.asarray(result) for result in results)
    if harness.group_name == "sort" and not harness.params.get("is_stable", True):
        keys = harness.params["num_keys"]
        results = _order_ties(results, keys, harness.params["dimension"])
        wanted = list(_order_ties(tuple(wanted), keys, harness.params["dimension"]))
    for result, want in zip(results, wanted, strict=True):
        if reason := _difference(np.asarray(result), want, harness.group_name):
            return "wrong", reason
    return "pass", ""


def _order_ties(arrays: tuple[np.ndarray, ...], keys: int, axis: int) -> tuple[np.ndarray, ...]:
    """Sorted arrays with rows of equal keys in the order of the other arrays: a stable order.

    An unstable sort may have them in any order. A result whose keys are out of order stays so.
    """
    if len(arrays) == keys:
        return arrays
    rows = [np.moveaxis(array, axis, -1) for array in arrays]
    is_new = np.zeros(rows[0].shape, bool)
    for key in rows[:keys]:
        is_new[..., 1:] |= key[..., 1:] != key[..., :-1]
    order = np.lexsort((*rows[keys:][::-1], np.cumsum(is_new, axis=-1)))
    return tuple(np.moveaxis(np.take_along_axis(row, order, -1), -1, axis) for row in rows)


def _difference(result: np.ndarray, want: np.ndarray, group: str = "") -> str | None:
    if (result.shape, result.dtype) != (want.shape, want.dtype):
        return f"{result.dtype}{result.shape} is not {want.dtype}{want.shape}"
    if want.dtype.kind in "biu":
        return None if np.array_equal(result, want) else "integers differ"
    is_complex = want.dtype.kind == "c"
    rough = _TOLERANCE[want.dtype.itemsize // (2 if is_complex else 1)]
    wide = "c16" if is_complex else "f8"
    got, true = np.asarray(result, wide), np.asarray(want, wide)
    largest = float(np.nanmax(np.abs(true), initial=1.0)) if group in _FACTORIZATIONS else 1.0
    if group in _FREE_SIGNS:
        got, true = np.abs(got), np.abs(true)
    if np.allclose(got, true, rtol=rough, atol=rough * largest, equal_nan=True):
        return None
    return f"differs by {np.nanmax(np.abs(got - true), initial=0):.3g}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--most", type=int, default=8, help="programs of each group; 0: all")
    parser.add_argument("--group", action="append", default=[], help="only these primitives")
    parser.add_argument("--list", action="store_true", help="name the programs that do not pass")
    options = parser.parse_args(words)
    jax.config.update("jax_enable_x64", True)
    counts: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    for harness in all_harnesses(options.most, options.group):
        outcome, reason = run_harness(harness)
        counts[outcome] += 1
        short = re.sub(r"\s+", " ", reason)[:160]
        reasons[outcome, re.sub(r"tensor<[^>]*>|\d+", "_", short)] += 1
        if options.list and outcome not in ("pass", "skip"):
            print(f"{outcome} {harness.fullname}: {short}", flush=True)
    for (outcome, reason), count in reasons.most_common():
        if outcome not in ("pass", "skip"):
            print(f"{count:5} {outcome:8} {reason}")
    print(
        " ".join(
            f"{name}={counts[name]}" for name in ("pass", "refused", "unclean", "wrong", "skip")
        )
    )
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
