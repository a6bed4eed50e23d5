"""Rows of losses and optimizers, of the domain ai.onnx.ml, and of ops that Nova refuses."""
