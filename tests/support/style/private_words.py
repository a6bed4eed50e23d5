"""The words that Nova does not use, and the field's words for the same thing.

`docs/glossary.md` has the vocabulary. A row names a word of an identifier (`names`), a pattern of
prose (`prose`), or both; rows with a folder hold only there, because the word is plain English
elsewhere. EXCEPTIONS are single files where a word is right, each with its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rule:
    """A private word: refused in names, in prose, or in both."""

    instead: str
    names: tuple[str, ...] = ()
    prose: str = ""
    folders: tuple[str, ...] = ("",)
    pattern: re.Pattern[str] | None = field(init=False)

    def __post_init__(self) -> None:
        pattern = re.compile(self.prose, re.IGNORECASE) if self.prose else None
        object.__setattr__(self, "pattern", pattern)


def word(*words: str, instead: str, folders: tuple[str, ...] = ("",)) -> Rule:
    """A word that is private wherever it stands."""
    return Rule(instead, words, rf"\b(?:{'|'.join(words)})\b", folders)


# Folders where a word has a private meaning only for code of kernels.
_CODEGEN = ("nova/codegen/", "nova/passes/", "native/", "tests/codegen/", "docs/")

RULES: dict[str, Rule] = {
    "road": word("road", "roads", instead="pipeline, compile session"),
    "strips": word("strips", instead="row panels"),
    "dots": word("dots", instead="GEMV, dot products", folders=_CODEGEN),
    "island": word("island", "islands", instead="host region"),
    "feeder": word("feeder", "feeders", instead="producers"),
    "fade": word("fade", "fades", instead="rescale"),
    "hull": word("hull", "hulls", instead="byte range"),
    "fitting": Rule("train, training", names=("fitting",), folders=("nova/train/", "nova/optim/")),
    "behind": Rule(
        "after",
        names=("behind",),
        prose=r"^(?!.*\b(?:left|leaves?|leaving)\b.*\bbehind\b).*\bbehind\b",
    ),
    "beside": word("beside", instead="next to, concurrently"),
    "apart": Rule(
        "isolated, separately, in a subprocess",
        names=("apart",),
        prose=r"(?<!tell )(?<!told )(?<!tells )(?<!them )(?<!far )\bapart\b(?! from)",
    ),
    "mixed": Rule(
        "hybrid",
        names=("mixed",),
        prose=r"\bmixed\b(?!.(?:precision|signs?|dtypes?|types|radix|bag))",
    ),
    "turn": Rule(
        "iteration",
        names=("turn", "turns"),
        prose=r"\b(?:a|one|two|each|every|per|last|first|next|whole|of|several|more) turns?\b"
        r"|\b(?:these|those|all|its|as many|some|whose) turns\b",
    ),
    "products": Rule(
        "matmuls, GEMM",
        names=("products",),
        prose=r"(?<!dot )(?<!inner )(?<!outer )(?<!partial )(?<!Cartesian )(?<!sum of )"
        r"(?<!sums of )(?<!sums and )\bproducts\b|\bmatrix products?\b",
        folders=("nova/codegen/", "nova/passes/", "nova/compiler/", "nova/tuning/", "native/"),
    ),
    "streaming stores": Rule("non-temporal stores", prose=r"\bstreaming stores?\b"),
    "is no": Rule(
        "is not a",
        prose=r"(?<!there )(?<!it )\bis no\b(?! (?:longer|more|less|better|worse|other|such|need))",
    ),
    "old names of passes": Rule(
        "the names in nova/passes/registry.py",
        prose=r"\b(?:contract-products|expand-half|form-islands|limit-registers|place-scratch"
        r"|relax-math|separate-arguments|share-kernels|strip-host|structure-attention"
        r"|structure-tensors|widen-conversions)\b",
    ),
    "gate": word("gate", "gates", instead="latch", folders=("native/",)),
    "bell": word("bell", "bells", instead="futex wait", folders=("native/",)),
    "lot": word("lot", "lots", instead="arena", folders=("native/",)),
    "mirror": Rule("host shadow", names=("mirror",), folders=("native/",)),
}

# (file or folder, rule): why the word is right there.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("examples/attention_block.py", "mixed"): "a tensor that mixes the values of tokens",
    ("native/include/nova/device.h", "mixed"): "a function of the C API that programs link",
    ("native/src/gpu/", "mixed"): "a function of the C API that programs link",
    ("native/src/python/", "mixed"): "a function of the C API that programs link",
    ("nova/codegen/gpu/gemm/mma.py", "mixed"): "mma of mixed precision",
    ("nova/ir/mathlib/", "turn"): "angles are reduced to quarter turns",
    ("nova/ops/functional/shapes.py", "turn"): "rot90 makes quarter turns",
    ("nova/passes/importing/simplify_stablehlo.py", "turn"): "an option of a pass, kept for texts",
}


def allowed(path: str, rule: str) -> bool:
    """Whether an exception covers a rule in a file."""
    return any(path.startswith(p) and r == rule for p, r in EXCEPTIONS)
