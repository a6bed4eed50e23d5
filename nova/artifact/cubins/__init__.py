"""Cubins: the assembler `ptxas`, bundles of cubins, and the cache of bundles for large programs."""
