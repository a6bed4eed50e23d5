"""ONNX ops that the host computes: strings, maps, and results whose shapes depend on values."""
