"""The first script of the child of `sandbox.py`: it sets up the caller's modules and Nova.

Runs as a script, before anything of Nova is imported. Its argument is JSON: the caller's `sys.path`
and the location of the caller's `nova`. An installed copy of Nova may have its own import finder
(an editable installation does) or come earlier on the path. The child must compile with the same
code as its caller, so the finder `SameNova` comes before all others.
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

    Other finders look for modules that are not there, such as a library that was built elsewhere.
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
    """Import `sandbox_child` as the caller would, and run it."""
    origin = json.loads(sys.argv[1])
    sys.path[:] = origin["path"]
    sys.meta_path.insert(0, SameNova(origin["origin"], origin["folders"]))
    from nova.compiler import sandbox_child

    sandbox_child.main()


if __name__ == "__main__":
    main()
