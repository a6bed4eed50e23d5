"""`nova`: look at compiled programs, run them, and manage the cache.

In: a command and its arguments. Out: text or JSON on stdout, exit 0; a message on stderr, exit 1.
The commands are modules of `nova/tools/commands`; docs/commands.md shows them at work.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from functools import cache

from nova.errors import CacheWarning, NovaError, RecompileWarning
from nova.tools.commands import COMMANDS
from nova.tools.start import add_version
from nova.tools.streams import open_closed_streams


def main(argv: list[str] | None = None) -> int:
    """Run the tool; the return value is the exit status."""
    open_closed_streams()
    words = sys.argv[1:] if argv is None else argv
    if words[:1] in (["opt"], ["translate"]):
        make_parser().error(f"{words[0]!r} is not a command of nova: use nova-{words[0]}")
    args = make_parser().parse_args(words)
    try:
        with warnings.catch_warnings():
            # The commands say the same as errors, or as rows of their answer.
            warnings.simplefilter("ignore", CacheWarning)
            warnings.simplefilter("always", RecompileWarning)
            warnings.showwarning = _print_warning
            status: int = args.run(args)
        sys.stdout.flush()
        return status
    except NovaError as error:
        print(f"nova {args.command}: {error}", file=sys.stderr)
    except BrokenPipeError:
        # The reader left (`| head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        prefix = f"{error.filename}: " if error.filename else ""
        print(f"nova {args.command}: {prefix}{error.strerror}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"nova {args.command}: interrupted", file=sys.stderr)
        return 130
    return 1


@cache
def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(prog="nova", description=__doc__.split("\n")[0][8:])
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").split("\n")[0].partition(": ")[2]
        command = commands.add_parser(
            name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}"
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _print_warning(message: Warning | str, *position: object, **options: object) -> None:
    """A warning without the line of this program that it came from."""
    print(f"nova: warning: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
