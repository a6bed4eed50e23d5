"""A simulated GPU: runs the PTX of a file on the CPU, and reports what a program may not do."""
