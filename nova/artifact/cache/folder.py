"""The cache folder: private to its user, or not used.

Entries are machine code that will be executed, so nobody else may be able to write there. In: a
path. Out: the reason why it cannot be trusted, or None. Called by `DiskCache` before it reads or
writes. A folder carries the tag by which backup programs recognize cache folders; with the tag it
is Nova's own, and permissions that were loosened are restored.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from nova.artifact.files import write_atomically
from nova.core.log import log

TAG = "CACHEDIR.TAG"
_TAG_TEXT = b"""Signature: 8a477f597d28d172789f06886806bc55
# This folder is a cache of programs that Nova has compiled; see https://bford.info/cachedir/
"""


def make_folder(folder: Path) -> None:
    """Create the folder if it does not exist; only its user may access it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def tag_folder(folder: Path) -> None:
    """Mark a folder that `find_problem` has accepted as Nova's own."""
    if not (folder / TAG).exists():
        write_atomically(folder / TAG, _TAG_TEXT, mode=0o600, sync=False)


def find_problem(folder: Path) -> str | None:
    """Why the folder cannot be used, or None; a folder that does not exist has no problem."""
    try:
        status = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to this one"
    if status.st_mode & 0o077 and not _make_private(folder):
        return f"is open to other users (mode {status.st_mode & 0o777:o}; chmod 700 it)"
    return None


def _make_private(folder: Path) -> bool:
    """Make a folder of Nova private; False for any other.

    Its entries stay: each is read only if it is a file of this user and contains its own key.
    """
    with suppress(OSError):
        tag = os.lstat(folder / TAG)
        if stat.S_ISREG(tag.st_mode) and tag.st_uid == os.geteuid():
            os.chmod(folder, 0o700)
            log("cache", f"the folder {folder} was open to other users: its mode is 700 again")
            return True
    return False
