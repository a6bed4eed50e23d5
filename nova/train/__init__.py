"""`nova.fit`: the training loop with checkpoints, progress and the loss curve.

loop        fit: steps, epochs, Ctrl-C, NaN
checkpoint  the file that a killed run resumes from
history     the losses, as numbers, text and PNG
progress    progress output on stderr
axes, text_chart, png_chart, canvas, font   drawing the curve
"""

from nova.train.history import History as History
from nova.train.loop import fit as fit
