"""What every benchmark shares: processes, timing, checks and the report."""
