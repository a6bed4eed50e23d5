"""Runs artifacts: arguments in, native code, arrays out. Imports neither MLIR nor LLVM."""
