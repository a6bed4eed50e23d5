"""nova keygen: make a pair of keys, to sign files with and to trust them by.

In: the beginning of two file names. Out: `PREFIX.private.pem`, which only its owner can read, and
`PREFIX.public.pem`, which `NOVA_TRUSTED_KEYS` takes. Keys that are there are not replaced.
"""

from __future__ import annotations

import argparse

from nova.artifact.sign import make_key_pair, read_public_keys
from nova.tools.report import Table, print_json, print_tables


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `nova keygen`."""
    parser.add_argument("prefix", metavar="PREFIX", help="the files' names up to .private.pem")
    parser.add_argument("--json", action="store_true", help="answer as JSON")


def run(args: argparse.Namespace) -> int:
    """Make the keys and say where they are."""
    private, public = make_key_pair(args.prefix)
    (key,) = read_public_keys([public])
    answer = {"private": str(private), "public": str(public), "key": key.hex()}
    if args.json:
        print_json(answer)
    else:
        print_tables([Table("keys", (), list(answer.items()))])
    return 0
