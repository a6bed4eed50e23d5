"""Programs of MLIR with `?` sizes as one program with symbolic sizes."""
