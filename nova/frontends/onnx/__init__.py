"""The importer of ONNX models: a protobuf becomes a graph of Nova's ops.

`read.py` reads files, `importer.py` walks their graphs, `rows/` has a row per ONNX op, `export.py`
writes the other direction. `nova.api.from_onnx` is the public entry. The package `onnx` is
optional: `package.py` imports it on first use.
"""
