"""What an import does with every op of a model: one module per model format, one table of rows."""
