"""The text of the keys under which a task's unique and limited jobs are told apart.

A key is made from the arguments as the handler will get them, so that it does not matter how they were given: by
position or by keyword, an int for a float, or left to their defaults. Of all arguments together, those that equal their
defaults are left out: a parameter that a later version adds with a default changes no key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from mainspring.core.codec import Arguments
from mainspring.core.keys import shorten_key
from mainspring.core.payload.models import written

_ENCODER: Final = msgspec.json.Encoder(enc_hook=written, order="deterministic")


@dataclass(frozen=True, slots=True)
class Keys:
    """Reads keys from the payloads of one task."""

    arguments: Arguments

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that a key can be made of."""
        return tuple(self.arguments.signature.hints)

    def can_default(self, name: str) -> bool:
        """Say whether a key can be made where this argument is left to its default."""
        try:
            _json(self.arguments.signature.defaults.get(name))
        except Exception:  # noqa: BLE001 - models run the user's own code
            return False
        return True

    def unique(self, payload: bytes, names: tuple[str, ...] | None) -> str:
        """Make the key of a job that is unique by these arguments, or by all."""
        given = self._given(payload)
        if names is None:
            return shorten_key(
                _json({name: value for name, value in given.items() if not self._is_default(name, value)})
            )
        return shorten_key(_json(self._chosen(given, names)))

    def limit(self, payload: bytes, names: tuple[str, ...]) -> str | None:
        """Make the key that a job is limited under; None: it is not limited."""
        chosen = self._chosen(self._given(payload), names)
        match list(chosen.values()):
            case [str(text)]:
                return shorten_key(text)
            case [value]:
                return None if value is None else shorten_key(_json(value))
            case values:
                return None if all(value is None for value in values) else shorten_key(_json(chosen))

    def _given(self, payload: bytes) -> dict[str, object]:
        args, kwargs = self.arguments.decode(payload)
        return self.arguments.signature.bind(args, kwargs)

    def _chosen(self, given: Mapping[str, object], names: tuple[str, ...]) -> dict[str, object]:
        defaults = self.arguments.signature.defaults
        return {name: given.get(name, defaults.get(name)) for name in names}

    def _is_default(self, name: str, value: object) -> bool:
        defaults = self.arguments.signature.defaults
        return name in defaults and _equal(value, defaults[name])


def _equal(value: Any, default: Any) -> bool:  # noqa: ANN401 - an argument of any type
    kinds = {type(value), type(default)}
    return (len(kinds) == 1 or kinds == {int, float}) and bool(value == default)


def _json(value: object) -> str:
    return _ENCODER.encode(value).decode()
