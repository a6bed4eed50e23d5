"""Nova's graph as an ONNX model: `writer.py` walks it, a row per op says which ONNX nodes it is."""
