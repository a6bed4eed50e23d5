"""Rows of random numbers, losses and optimizers, of ai.onnx.ml, and of ops that Nova refuses."""
