"""What the child of `sandbox.py` runs first: it gets the caller's modules, and the caller's Nova.

Run as a script, before anything of Nova is imported. Its argument is JSON: the caller's `sys.path`,
and where the caller's `nova` is. An installed copy of Nova may answer imports by a finder of its
own (an editable installation does) or stand earlier on the path; the child must compile with the
same code as its caller, so `SameNova` is asked before all others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from types import ModuleType


class SameNova(MetaPathFinder):
    """Finds the package at `origin`, and its modules in `folders`.

    A module that is not there, such as a library that was built elsewhere, is left to the others.
    """

    def __init__(self, origin: str, folders: list[str]):
        self.origin, self.folders = origin, folders

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "nova":
            folders = self.folders
            return spec_from_file_location(name, self.origin, submodule_search_locations=folders)
        return PathFinder.find_spec(name, path, target) if name.startswith("nova.") else None


def main() -> None:
    """Import the other end as the caller would, and run it."""
    given = json.loads(sys.argv[1])
    sys.path[:] = given["path"]
    sys.meta_path.insert(0, SameNova(given["origin"], given["folders"]))
    from nova.compiler import sandbox_child

    sandbox_child.main()


if __name__ == "__main__":
    main()
