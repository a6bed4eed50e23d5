"""Tracing: what every core did in a run, what was planned, and what would make it shorter.

`collect.py` is `nova.trace`; from its records come a summary (`summary.py`), JSON for Perfetto
(`perfetto.py`) and a page for the browser (`page.py`). docs/tracing.md shows them. Imports neither
MLIR nor LLVM, and is itself imported when somebody traces or simulates.
"""
