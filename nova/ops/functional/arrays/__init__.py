"""Functions that join, split, write into and summarize arrays: names of torch and numpy."""
