"""How many of ONNX's own tests Nova passes, by the numpy interpreter or compiled.

In: the models and data in the package `onnx` (`--kind` node, simple, pytorch-operator or
pytorch-converted). Out: counts of tests that pass, are refused (with `--list` the reasons) or are
wrong; the exit status is 1 if one is wrong. `--write` writes docs/onnx-node-tests.md.

    python benchmarks/onnx_nodes.py --list
    python benchmarks/onnx_nodes.py --compiled --kind simple
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
PAGE = ROOT / "docs" / "onnx-node-tests.md"


def render_page(outcomes: dict[str, str]) -> str:
    """The page of refused tests, by reason."""
    reasons: dict[str, list[str]] = {}
    for name, text in outcomes.items():
        if text.startswith("refused: "):
            reasons.setdefault(text.removeprefix("refused: "), []).append(name)
    passed = sum(text == "pass" for text in outcomes.values())
    lines = [
        "<!-- Written by `python benchmarks/onnx_nodes.py --write`. -->",
        "",
        "# ONNX node tests",
        "",
        f"Of the {len(outcomes)} node tests of onnx 1.22.0, {passed} pass, "
        f"{len(outcomes) - passed} are refused, none is wrong.",
        "",
        "| reason | tests |",
        "|---|---|",
    ]
    ordered = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    for reason, names in ordered:
        tests = ", ".join(f"`{name.removeprefix('test_')}`" for name in names)
        lines.append(f"| {reason} ({len(names)}) | {tests} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the tests; the return value is the exit status."""
    from onnx_cases import cases, outcome

    parser = argparse.ArgumentParser(description="Run ONNX's own tests through Nova.")
    parser.add_argument("--kind", default="node", help="the folder of tests (node)")
    parser.add_argument("--compiled", action="store_true", help="compile, not only interpret")
    parser.add_argument("--list", action="store_true", help="name the tests that do not pass")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    outcomes = {case.name: outcome(case, compiled=args.compiled) for case in cases(args.kind)}
    for name, text in outcomes.items():
        if text.startswith("wrong") or (args.list and text != "pass"):
            print(f"{name}: {text}")
    counts = Counter(text.partition(":")[0] for text in outcomes.values())
    print(", ".join(f"{counts[word]} {word}" for word in ("pass", "refused", "wrong")))
    if args.write:
        PAGE.write_text(render_page(outcomes))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
