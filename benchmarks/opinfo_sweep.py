"""How many samples of torch's op database Nova's own functions compute as torch does.

In: `torch.testing._internal.common_methods_invocations.op_db`, about 700 ops with samples of their
arguments (it needs the package expecttest). Each sample of an op that Nova has runs with its
gradients in f32, i64, bool and complex64, by the numpy interpreter or compiled, and is compared
with torch. Out: counts of samples that pass, are refused by an error of Nova about the call, fail
uncleanly (any other error), or are wrong; `--list` names those that do not pass. The exit status is
1 if a sample is wrong or unclean. `--write` writes docs/opinfo.md.

    python benchmarks/opinfo_sweep.py --compiled --op sort --op linalg.svd
    python benchmarks/opinfo_sweep.py --write
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support" / "opinfo")]
PAGE = ROOT / "docs" / "opinfo.md"
MOST = 16
"""Samples of each op and dtype, evenly spaced over those of torch."""


def run_op(op: Any, most: int = MOST, *, compiled: bool) -> dict[str, str]:
    """The outcome of each sample of an op, by dtype and sample."""
    from opinfo_samples import DTYPES, outcomes, samples

    results = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, dtype in DTYPES.items():
            drawn = samples(op, dtype, most)
            for i, text in outcomes(drawn, compiled=compiled).items():
                results[f"{name} {i}: {drawn[i]}"] = text
    return results


def render_page(results: dict[str, dict[str, str]]) -> str:
    """The page: counts, and the refused samples by reason."""
    from opinfo_table import OTHER_MEANING, RANDOM

    texts = [text for outcomes in results.values() for text in outcomes.values()]
    counts = Counter(text.partition(":")[0] for text in texts)
    wrong = counts["wrong"] + counts["unclean"]
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for name, outcomes in results.items():
        for text in outcomes.values():
            if text.startswith("refused: "):
                reasons[short_reason(text)][name] += 1
    lines = [
        "<!-- Written by `python benchmarks/opinfo_sweep.py --write`. -->",
        "",
        "# Samples of torch's op database",
        "",
        "torch has a database of its ops with samples of their arguments (OpInfo,",
        f"`torch.testing._internal`). Of {len(texts)} samples of the {len(results)} entries for",
        f"ops that Nova has, in f32, i64, bool and complex64, {counts['pass']} have torch's",
        f"results and gradients, {counts['refused']} are refused, {wrong or 'none'} is wrong.",
        "An element may differ by 1e-4 of itself plus 1e-5 of the largest one (1e-8 and 1e-9 in",
        "f64), or by four times the error of torch's own f32 against its f64.",
        "`tests/support/opinfo/` says how each call of torch is written in Nova.",
        "",
        "| refused because | samples |",
        "|---|---|",
    ]
    ordered = sorted(reasons.items(), key=lambda item: (-item[1].total(), item[0]))
    for reason, ops in ordered:
        samples = ", ".join(f"`{op}` {count}" for op, count in sorted(ops.items()))
        lines.append(f"| {reason} ({ops.total()}) | {samples} |")
    lines += [
        "",
        "Not compared: functions of random numbers, whose generators differ "
        f"({_listed(sorted(RANDOM))}), and",
        "names with another meaning: "
        + "; ".join(f"`{name}` ({text})" for name, text in sorted(OTHER_MEANING.items()))
        + ".",
        "",
        "Names of the database that Nova has no function of: " + _listed(_absent()) + ".",
    ]
    return "\n".join(lines) + "\n"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _absent() -> list[str]:
    from opinfo_table import OTHER_MEANING, RANDOM, function_of
    from torch.testing._internal.common_methods_invocations import op_db

    names = {op.name for op in op_db if function_of(op.name) is None}
    return sorted(names - RANDOM - OTHER_MEANING.keys())


def short_reason(text: str) -> str:
    """The reason of a refusal without the sample's own sizes and values."""
    text = text.removeprefix("refused: ").splitlines()[0]
    text = re.sub(r"<Tensor [^>]*>", "a tensor", text)
    text = re.sub(r"(f32|i64|u8|bool|complex64)\[[^\]]*\]", r"\1", text)
    text = re.sub(r"^(\w+: )+(?=\S)", "", text)
    text = re.sub(r"\([\d, ]*\)", "(...)", text)
    text = re.sub(r"-?\b\d+(\.\d+)?\b", "N", text)
    return text.replace("|", "or")


def main(words: Sequence[str] | None = None) -> int:
    """Run the samples; the return value is the exit status."""
    from opinfo_samples import ops

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--op", action="append", default=[], help="only these names of torch")
    parser.add_argument("--most", type=int, default=MOST, help="samples of each op and dtype")
    parser.add_argument("--compiled", action="store_true", help="compile, not only interpret")
    parser.add_argument("--list", action="store_true", help="name the samples that do not pass")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    args = parser.parse_args(words)
    results = {}
    for op in ops(args.op):
        results[op.formatted_name] = run_op(op, args.most, compiled=args.compiled)
        for name, text in results[op.formatted_name].items():
            if text.startswith(("wrong", "unclean")) or (args.list and text != "pass"):
                print(f"{name}: {text}", flush=True)
    counts = Counter(t.partition(":")[0] for r in results.values() for t in r.values())
    print(", ".join(f"{counts[word]} {word}" for word in ("pass", "refused", "unclean", "wrong")))
    if args.write:
        PAGE.write_text(render_page(results))
    return 1 if counts["wrong"] or counts["unclean"] else 0


if __name__ == "__main__":
    sys.exit(main())
