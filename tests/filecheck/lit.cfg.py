"""lit's view of the text tests: `lit tests/filecheck` runs each RUN line in its own processes.

`tests/filecheck/test_filecheck.py` runs the same files in one process, which is faster.
"""

# ruff: noqa: F821 (lit defines `config` before it runs this file)

import os
import sys

import lit.formats

config.name = "nova"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.test_source_root = os.path.dirname(__file__)
config.environment["PYTHONPATH"] = os.path.abspath(
    os.path.join(os.path.dirname(__file__), "..", "..")
)
config.substitutions += [
    ("%nova-opt", f"{sys.executable} -m nova.tools.nova_opt"),
    ("%filecheck", f"{sys.executable} -m filecheck"),
]
