"""The code that benchmarks share: processes, timing, checks and the report."""
