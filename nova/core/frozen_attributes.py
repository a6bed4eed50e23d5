"""`Sealed`: objects that reject unknown attributes set by users.

`step.lr = 0.1` on a plain object is accepted by Python and silently ignored. Classes of the
public interface derive from `Sealed` and call `_seal` at the end of construction.
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
            from nova.core.location import user_location  # only for an error message

            raise SealedAttributeError(
                f"{type(self).__name__}.{name} cannot be assigned",
                where=str(user_location()),
                hint=self._hint_for(name),
            )
        super().__setattr__(name, value)

    def _hint_for(self, name: str) -> str:
        """The hint for an assignment to `name`."""
        return "its settings are given when it is made: make a new one"


def _has_setter(cls: type, name: str) -> bool:
    return getattr(getattr(cls, name, None), "fset", None) is not None
