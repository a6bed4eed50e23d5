"""Linear algebra: factorizations and solvers of batches of matrices, with torch's names.

Each factorization is a loop of Nova's ops (`nova.fori_loop`, `nova.while_loop`), so it runs on
every target, inside `nova.jit`, other loops and `.nova` files. Gradients are closed formulas over
the same functions, so they have gradients themselves.
"""

from typing import TYPE_CHECKING, Any

from nova.graph.other_names import LINALG, no_attribute
from nova.linalg.cholesky import cholesky, cholesky_solve
from nova.linalg.eigen import eigh, eigvalsh
from nova.linalg.exponential import matrix_exp
from nova.linalg.lu import det, inv, logdet, lu, slogdet, solve
from nova.linalg.lu_factors import cholesky_inverse, lu_factor, lu_solve, lu_unpack
from nova.linalg.norms import cond, matrix_norm, matrix_power, matrix_rank, norm, vector_norm
from nova.linalg.products import (
    cross,
    diagonal,
    householder_product,
    matmul,
    multi_dot,
    tensorinv,
    tensorsolve,
    vander,
    vecdot,
)
from nova.linalg.qr import qr
from nova.linalg.svd import lstsq, pinv, svd, svdvals
from nova.linalg.triangular import solve_triangular

__all__ = [
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "householder_product",
    "inv",
    "logdet",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "lu_unpack",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]

if not TYPE_CHECKING:  # type checkers know the names, and report the others themselves

    def __getattr__(name: str) -> Any:
        raise no_attribute("module 'nova.linalg'", name, __all__, LINALG)
