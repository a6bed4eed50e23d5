"""Initial values: arrays by shape, and torch's functions that set a parameter in place."""
