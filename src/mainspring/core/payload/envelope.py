"""The envelope around stored JSON, `{"v":1,"args":…}` or `{"v":1,"value":…}`, and what to say of one that does not open.

Opening is one call of a typed decoder, and a search for strangers where the decoder would let them pass. Only when that
fails is the JSON looked at again, at leisure, to tell which value is to blame.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from mainspring.core.payload.misfit import Misfit, TooDeep, field_step, missing
from mainspring.core.payload.models import read, written
from mainspring.core.payload.scalars import Search, told
from mainspring.errors import PayloadError

VERSION: Final = 1

_ENCODER: Final = msgspec.json.Encoder(enc_hook=written)

# msgspec tells the place at the end of its message: "Expected `int`, got `str` - at `$.args.order.lines[2].price`",
# with [...] for any entry of a dict, and "… - at `key` in `$.args.prices`" for a key of one.
_PLACE: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<steps>[^`]*)`\Z")
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Seals what belongs to one task, result or message, and opens it again."""

    subject: str
    limit: int
    content: Literal["args", "value"]
    decoder: "msgspec.json.Decoder[Any]"
    search: Search
    search_always: bool

    @classmethod
    def around(
        cls,
        declared: object,
        *,
        content: Literal["args", "value"],
        subject: str,
        limit: int,
        search: Search,
        search_always: bool,
    ) -> "Envelope":
        """Make the envelope of one type. `search_always` says that its decoder would let strangers pass."""
        fields: Any = [("v", Literal[VERSION]), ("content", declared)]
        struct = msgspec.defstruct("Envelope", fields, rename={"content": content}, forbid_unknown_fields=True)
        decoder = msgspec.json.Decoder(struct, dec_hook=read)
        return cls(
            subject=subject,
            limit=limit,
            content=content,
            decoder=decoder,
            search=search,
            search_always=search_always,
        )

    def seal(self, content: object) -> bytes:
        """Write content that was checked before; what fails here is not in the types."""
        try:
            payload = _ENCODER.encode({"v": VERSION, self.content: content})
        except Exception as error:  # models and enums run the user's own code, which may raise anything
            raise PayloadError(self.subject, "", f"cannot be written as JSON: {error}") from error
        if len(payload) > self.limit:
            problem = f"{len(payload):,} bytes of JSON, the limit is {self.limit:,}; keep it elsewhere and pass its key"
            raise PayloadError(self.subject, "", problem)
        return payload

    def open(self, payload: bytes) -> Any:  # noqa: ANN401 - the decoder was made from a type that is known at run time only
        """Read the content, or raise `PayloadError`."""
        try:
            content = self.decoder.decode(payload).content
            if self.search_always:
                self.search(msgspec.json.decode(payload)[self.content])
        except Exception as error:  # constructors and validators are the user's own code
            raise self.refusal(self._blame(payload, error)) from error
        return content

    def refusal(self, misfit: Misfit, name: str = "") -> PayloadError:
        """What callers see of a misfit, which may lie within the argument `name`."""
        return PayloadError(self.subject, (name + misfit.path).removeprefix("."), misfit.problem)

    def _blame(self, payload: bytes, error: Exception) -> Misfit:
        """Find out why a payload did not open."""
        try:
            raw = msgspec.json.decode(payload)
            self._inspect(raw)
        except Misfit as misfit:
            return misfit
        except RecursionError:
            return TooDeep()
        except msgspec.ValidationError:  # a number too long to be read by anyone, so there is nothing to look into
            raw = {}
        except (msgspec.DecodeError, UnicodeDecodeError) as malformed:
            return Misfit(f"this is no JSON: {malformed}")
        if isinstance(error, msgspec.ValidationError):
            return self._place(raw, error)
        return Misfit(f"cannot be read: {type(error).__name__}: {error}")

    def _inspect(self, raw: object) -> None:
        """Look for troubles that can be told better than the decoder tells them."""
        version = raw.get("v") if isinstance(raw, dict) else None
        if type(version) is int and version > VERSION:
            raise Misfit(
                f"a newer version of Mainspring wrote this (format {version}); this one reads format {VERSION}"
            )
        if not isinstance(raw, dict) or version != VERSION or raw.keys() != {"v", self.content}:
            raise Misfit(f'this is no payload: expected {{"v":{VERSION},"{self.content}":…}}')
        self.search(raw[self.content])

    def _place(self, raw: dict[str, Any], error: msgspec.ValidationError) -> Misfit:
        """Turn msgspec's message into a path and a problem."""
        message, cause = str(error), error.__cause__
        place = _PLACE.search(message)
        problem = message[: place.start()] if place else message
        path = self._path(raw, place["steps"] if place else "", message).removeprefix(f".{self.content}")
        if isinstance(cause, Misfit):  # from within a model, which knows more
            return Misfit(cause.problem, path + cause.path)
        if cause is not None:  # from a constructor of the user's, in words of its own
            return Misfit(problem, path)
        lacking = _MISSING.fullmatch(problem)
        if lacking:
            misfit = missing("field" if path or self.content == "value" else "argument", lacking["name"])
            misfit.under(path)
            return misfit
        return Misfit(("a key: " if place and place["key"] else "") + told(problem), path)

    def _path(self, raw: dict[str, Any], steps: str, message: str) -> str:
        """Walk msgspec's steps through the JSON, to learn which entry it means by [...]."""
        node: Any = raw
        path = ""
        try:
            for step in _STEP.finditer(steps):
                if step["name"]:
                    node, path = node[step["name"]], path + field_step(step["name"])
                elif step["index"]:
                    node, path = node[int(step["index"])], path + step[0]
                else:
                    key = self._culprit(raw, node, message)
                    node, path = node[key], f"{path}[{key!r}]"
        except (AttributeError, LookupError, TypeError):  # a field with a dot or a bracket in its name
            return steps
        return path

    def _culprit(self, raw: dict[str, Any], node: dict[str, Any], message: str) -> str:
        """Find the entry of `node` that is to blame: the last of the shortest beginning that gives the same message."""
        entries = list(node.items())

        def fails(count: int) -> bool:
            node.clear()
            node.update(entries[:count])
            try:
                self.decoder.decode(msgspec.json.encode(raw))
            except Exception as error:  # noqa: BLE001 - as in `open`
                return str(error) == message
            return False

        count = bisect_left(range(len(entries)), True, key=fails)
        node.update(entries)
        return entries[count - 1][0]
