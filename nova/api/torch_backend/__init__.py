"""`torch.compile(model, backend="nova")`: graphs of torch, compiled and called without copies.

The entry point `torch_dynamo_backends` names `backend.py`, so torch finds it without an import.
"""
