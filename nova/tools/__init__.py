"""Command-line tools: thin argparse shells over the library."""
