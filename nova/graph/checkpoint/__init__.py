"""Gradient checkpointing: values that are recomputed in the backward pass, and which are saved."""

from nova.graph.checkpoint.checkpoint_policies import checkpoint_name
from nova.graph.checkpoint.recompute import Recompute, checkpoint

__all__ = ["Recompute", "checkpoint", "checkpoint_name"]
