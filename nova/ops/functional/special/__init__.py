"""Special functions: gamma, error, Bessel and zeta functions, and those of the normal distribution.

They compute in f64 and round to the type of the operand.
"""
