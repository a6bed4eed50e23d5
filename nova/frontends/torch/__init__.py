"""Graphs of torch: ATen ops in `torch.fx`, imported as graphs of Nova's ops.

`importer.py` reads an FX graph; `rows/` has one row per ATen op. Imported only where torch is.
"""
