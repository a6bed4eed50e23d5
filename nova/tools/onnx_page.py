"""The page of ONNX ops: the rows of the importer and of the exporter, for `gen_docs`."""

from __future__ import annotations

from nova.frontends.onnx.export import elementwise, structure
from nova.frontends.onnx.export.writer import EXPORTS, OPSET
from nova.frontends.onnx.host.table import HOST_ROWS, load_host_rows
from nova.frontends.onnx.rows import load_rows
from nova.frontends.onnx.table import ROWS

assert elementwise and structure  # imported for their rows


def render_onnx() -> str:
    """The tables of ops, by the module of their row."""
    load_rows()
    lines = [
        "# ONNX ops",
        "",
        "The rows of [the importer](onnx.md). An op of ONNX without a row is expanded by the",
        "function body that its schema has (`Attention`, `RotaryEmbedding`, `AffineGrid`,",
        "`HannWindow` and others), or by a function of the model.",
        "",
        "## Imported",
        "",
        "| module | ops |",
        "|---|---|",
    ]
    modules: dict[str, list[str]] = {}
    refused: list[str] = []
    for (domain, name), row in sorted(ROWS.items()):
        title = f"`{domain}.{name}`" if domain else f"`{name}`"
        if row.build is None:
            refused.append(f"| {title} | {row.refused} |")
        else:
            path = row.build.__module__.removeprefix("nova.frontends.onnx.").replace(".", "/")
            modules.setdefault(f"{path}.py", []).append(title)
    lines += [f"| `{module}` | {', '.join(names)} |" for module, names in sorted(modules.items())]
    load_host_rows()
    lines += ["", "## On the host", ""]
    lines += [
        "A call computes these between the compiled parts of a model: `host/selection.py`, if"
    ]
    lines += [
        "the shape of the result depends on values of the run, the others for strings and maps."
    ]
    lines += ["", "| module | ops |", "|---|---|"]
    hosted: dict[str, list[str]] = {}
    for (domain, name), compute in sorted(HOST_ROWS.items()):
        path = compute.__module__.removeprefix("nova.frontends.onnx.").replace(".", "/")
        hosted.setdefault(f"{path}.py", []).append(f"`{domain}.{name}`" if domain else f"`{name}`")
    lines += [f"| `{module}` | {', '.join(names)} |" for module, names in sorted(hosted.items())]
    lines += [
        "",
        "## Refused",
        "",
        "In a file, and in bodies and functions:",
        "",
        "| op | reason |",
        "|---|---|",
        *refused,
    ]
    names = ", ".join(f"`{name}`" for name in sorted(EXPORTS) if name != "uniform")
    lines += [
        "",
        "## Exported",
        "",
        f"`nova.to_onnx` writes opset {OPSET}. These ops of Nova have rows; composites without one",
        "are expanded first, and groups of ops that are a convolution or a max pool become one",
        "node.",
        "",
        names,
    ]
    return "\n".join(lines) + "\n"
