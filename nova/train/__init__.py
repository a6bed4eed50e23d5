"""`nova.fit`: the training loop with checkpoints, progress and the loss curve.

loop        fit: steps, epochs, Ctrl-C, NaN
checkpoint  the file that a killed run resumes from
history     the losses, as numbers, text and PNG
progress    progress output on stderr: a bar of rich, or lines
text_chart, png_chart, axes   drawing the curve, as text and by matplotlib
"""

from nova.train.history import History as History
from nova.train.loop import fit as fit
