"""`ModelConfig`: the values of a `config.json`, read with the key in every error.

Called by the models of this folder. An option that changes the result and that a model does not
implement is refused by name; keys that concern training or tokenizers only are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova.errors import PretrainedError


class ModelConfig:
    """The values of a configuration; `source` names its file in errors."""

    def __init__(self, values: Mapping[str, Any], source: str):
        self.values, self.source = values, source

    def error(self, key: str, why: str, hint: str | None = None) -> PretrainedError:
        """The error of one key."""
        return PretrainedError(f"{key}: {why}", where=self.source, hint=hint)

    def get(self, key: str) -> Any:
        """The value of a key; None if it is missing or null."""
        return self.values.get(key)

    def size(self, key: str, default: int | None = None) -> int:
        """A positive integer."""
        value = default if self.get(key) is None else self.get(key)
        if type(value) is not int or value < 1:
            raise self.error(key, f"it must be a positive integer, not {value!r}")
        return value

    def number(self, key: str, default: float) -> float:
        """A positive number."""
        value = default if self.get(key) is None else self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.error(key, f"it must be a positive number, not {value!r}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = default if self.get(key) is None else self.get(key)
        if not isinstance(value, bool):
            raise self.error(key, f"it must be true or false, not {value!r}")
        return value

    def choice(self, key: str, default: str, options: Mapping[str, Any]) -> Any:
        """The entry of a table under the text of a key."""
        value = default if self.get(key) is None else self.get(key)
        if not isinstance(value, str) or value not in options:
            raise self.error(
                key, f"{value!r} is not supported", hint=f"supported: {', '.join(options)}"
            )
        return options[value]

    def require(self, key: str, expected: Any) -> None:
        """Refuse an option whose other values are not implemented."""
        value = expected if self.get(key) is None else self.get(key)
        if value != expected:
            raise self.error(key, f"{value!r} is not supported", hint=f"supported: {expected!r}")
