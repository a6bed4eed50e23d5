"""nova sign: sign a .nova file with a private key, in place or as another file.

In: a sound file and an Ed25519 key in PEM form. Out: the file with its signature; a signature that
it had is replaced. `NOVA_TRUSTED_KEYS` says whose signatures a load accepts.
"""

from __future__ import annotations

import argparse
from typing import Any

from nova.artifact.format import load_artifact, read_artifact, save_artifact
from nova.artifact.sign import sign_artifact
from nova.tools.describe import describe_signer
from nova.tools.report import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `nova sign`."""
    add = parser.add_argument
    add("file", metavar="FILE", help="a .nova file")
    add("--key", required=True, metavar="KEY", help="a private key, as nova keygen makes one")
    add("-o", dest="output", metavar="OUT", help="where it goes (default: FILE itself)")
    add("--json", action="store_true", help="answer as JSON")


def run(args: argparse.Namespace) -> int:
    """Sign the file; one that fails a check is not signed."""
    signed = sign_artifact(load_artifact(args.file).data, args.key)
    output = args.output or args.file
    save_artifact(output, signed)
    signer = describe_signer(read_artifact(signed)) or {}
    answer: dict[str, Any] = {"file": output, "key": signer["key"]}
    if args.json:
        print_json(answer)
    else:
        print(f"{output} is signed by {answer['key']}")
    return 0
