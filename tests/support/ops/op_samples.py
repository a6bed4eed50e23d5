"""All samples by the name of their row; `test_op_samples.py` checks that none is missing."""

import samples_elementwise
import samples_loops
import samples_movement
import samples_nn
import samples_reductions
import samples_segments

SAMPLES = (
    samples_elementwise.SAMPLES
    | samples_reductions.SAMPLES
    | samples_movement.SAMPLES
    | samples_nn.SAMPLES
    | samples_segments.SAMPLES
    | samples_loops.SAMPLES
)
