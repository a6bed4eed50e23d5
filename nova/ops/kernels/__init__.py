"""Kernels that users write: loops over tensors in a subset of Python, and MLIR text.

The text of a kernel is an attribute of its op, so that it is part of the plan: of cache keys, of
`.nova` files, and of every stage that prints.

    language.py     the subset: text to a checked syntax tree
    expressions.py  the value of an expression, for any domain of values
    typing.py       the dtype of every variable
    interpret.py    the numpy reference
    stages.py       loops as stages that linalg can express: loop distribution, reductions
    batch.py        the kernel of a batch, for vmap
    rows.py         the two rows of the op table
"""

from nova.ops.kernels.rows import register_rows

__all__ = ["register_rows"]
