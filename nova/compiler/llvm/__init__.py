"""LLVM through llvmlite, for both back ends: LLVM IR text to objects, assembly and PTX."""
