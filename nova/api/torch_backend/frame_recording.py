"""Frames of dynamo without its record for profilers.

dynamo writes two calls of Python into each compiled frame, which name the time before the graph
runs in a profile ("Pregraph bytecode"). Without a profiler they do nothing, and cost a tenth of a
small call. It reads `record_runtime_overhead` when it writes the frame, after the backend returns:
the setting is off until that compile ends, and then has its value from before. Guards and results
do not change.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo import config
from torch._dynamo.callback import callback_handler


def skip_frame_recording() -> None:
    """Leaves the record out of the frame that dynamo compiles now; a profiler in use keeps it."""
    if not getattr(config, "record_runtime_overhead", False):
        return  # off already, or a version of torch without it
    if torch.autograd.profiler._is_profiler_enabled or not _is_compiling():
        return

    def restore(*_: Any) -> None:
        config.record_runtime_overhead = True
        # A new list: dynamo goes through the one that has this function.
        others = [c for c in callback_handler.end_callbacks if c is not restore]
        callback_handler.end_callbacks = others

    callback_handler.register_end_callback(restore)
    config.record_runtime_overhead = False


def _is_compiling() -> bool:
    """Whether dynamo compiles a frame: else nothing would restore the setting."""
    return torch._guards.CompileContext.try_get() is not None
