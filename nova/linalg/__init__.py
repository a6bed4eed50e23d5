"""Linear algebra: factorizations and solvers of batches of matrices, with torch's names.

Each factorization is a loop of Nova's ops (`nova.fori_loop`, `nova.while_loop`), so it runs on
every target, inside `nova.jit`, other loops and `.nova` files. Gradients are closed formulas over
the same functions, so they have gradients themselves.
"""

from typing import TYPE_CHECKING, Any

from nova.graph.other_names import LINALG, no_attribute
from nova.linalg.cholesky import cholesky, cholesky_solve
from nova.linalg.eigen import eigh, eigvalsh
from nova.linalg.lu import det, inv, lu, slogdet, solve
from nova.linalg.norms import cond, matrix_norm, matrix_power, matrix_rank, norm, vector_norm
from nova.linalg.qr import qr
from nova.linalg.svd import lstsq, pinv, svd, svdvals
from nova.linalg.triangular import solve_triangular

__all__ = [
    "cholesky",
    "cholesky_solve",
    "cond",
    "det",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "lu",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "vector_norm",
]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute("module 'nova.linalg'", name, __all__, LINALG)
