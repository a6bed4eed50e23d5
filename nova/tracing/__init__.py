"""Tracing: the activity of every core in a run, the planned schedule, and advice.

`collect.py` is `nova.trace`; its records become a summary (`summary.py`), JSON for Perfetto
(`perfetto.py`) and a page for the browser (`page.py`). docs/tracing.md shows them. Imports neither
MLIR nor LLVM, and is itself imported only to trace or simulate.
"""
