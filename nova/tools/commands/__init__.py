"""The commands of `nova`, one module each. A new one is a module and a row.

A module has a docstring whose first line is its help, `add_arguments(parser)`, and `run(args)`,
which gives the exit status and raises `NovaError` for what goes wrong. `nova.tools.nova` calls
both.
"""

from __future__ import annotations

from types import ModuleType

from nova.tools.commands import cache, import_report, inspect, keygen, run, sign, trace

COMMANDS: dict[str, ModuleType] = {
    "inspect": inspect,
    "run": run,
    "trace": trace,
    "import-report": import_report,
    "sign": sign,
    "keygen": keygen,
    "cache": cache,
}
