"""`nova.fit`: the training loop with checkpoints, progress and the loss curve.

loop        fit: steps, epochs, Ctrl-C, NaN
iterables   any iterable as batches: a DataLoader, a list
loggers     CSV and TensorBoard; early_stopping: when to end
checkpoint  the file that a killed run resumes from
history     the losses, as numbers, text and PNG
progress    progress output on stderr: a bar of rich, or lines
text_chart, png_chart, axes   drawing the curve, as text and by matplotlib
"""

from typing import TYPE_CHECKING, Any

from nova.graph.other_names import no_attribute
from nova.train.early_stopping import EarlyStopping as EarlyStopping
from nova.train.history import History as History
from nova.train.loggers import CSVLogger as CSVLogger
from nova.train.loggers import TensorBoardLogger as TensorBoardLogger
from nova.train.loop import fit as fit

__all__ = ["CSVLogger", "EarlyStopping", "History", "TensorBoardLogger", "fit"]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute("module 'nova.train'", name, __all__, {})
