"""`Sealed`: objects on which users cannot set attributes that nothing reads.

`step.lr = 0.1` on a plain object is accepted by Python and ignored by everybody. Classes of the
public interface derive from `Sealed` and call `_seal` when they are made.
"""

from __future__ import annotations

from typing import Any

from nova.errors import SealedAttributeError


class Sealed:
    """Once sealed, only attributes with a leading underscore and properties can be set."""

    _sealed = False

    def _seal(self) -> None:
        self._sealed = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._sealed and not name.startswith("_") and not _has_setter(type(self), name):
            from nova.core.location import user_location  # only on the way to an error

            raise SealedAttributeError(
                f"{type(self).__name__}.{name} cannot be assigned",
                where=str(user_location()),
                hint=self._hint_for(name),
            )
        super().__setattr__(name, value)

    def _hint_for(self, name: str) -> str:
        """What to do instead of assigning `name`."""
        return "its settings are given when it is made: make a new one"


def _has_setter(kind: type, name: str) -> bool:
    return getattr(getattr(kind, name, None), "fset", None) is not None
