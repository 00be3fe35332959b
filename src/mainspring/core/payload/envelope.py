"""The envelope around stored JSON, `{"v":1,"args":…}` or `{"v":1,"value":…}`, and what to say of one that does not open.

Sealing writes the content, reads it back at once and compares: nothing less shows that it can be carried. Opening is
one call of a typed decoder, and a search for strangers where the decoder would let them pass. Only when that fails is
the JSON looked at again, at leisure, to tell which value is to blame.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET

from mainspring.core.payload.compare import same
from mainspring.core.payload.declared import Search
from mainspring.core.payload.misfit import KEY, Misfit, TooDeep, field_step, missing, name_of, told, wrong
from mainspring.core.payload.models import read
from mainspring.core.payload.places import ENCODER, difference, levels, part_at, unwritable
from mainspring.errors import PayloadError

VERSION: Final = 1

# msgspec tells the place at the end of its message: "Expected `int`, got `str` - at `$.args.order.lines[2].price`",
# with [...] for any entry of a dict, and "… - at `key` in `$.args.prices`" for a key of one.
_PLACE: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<steps>[^`]*)`\Z")
_STEP: Final = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`")
_WRONG: Final = re.compile(r"Expected `([^`]*)`, got `[^`]*`|Invalid RFC3339 encoded (\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Seals what belongs to one task, result or message, and opens it again."""

    subject: str
    limit: int
    content: Literal["args", "value"]
    fields: Mapping[str, str]
    """The field of the struct in which each argument comes back; none of a single value."""
    decoder: "msgspec.json.Decoder[Any]"
    search: Search
    search_always: bool
    """Whether the decoder would let strangers pass. If not, the search still knows better words for them."""

    def seal(self, given: Any) -> bytes:  # noqa: ANN401 - one value, or a dict of arguments
        """Write what was given, or raise `PayloadError` unless it comes back the same."""
        try:
            payload = self._write(given)
            self._rehearse(payload, given)
        except (TooDeep, RecursionError):
            path, _ = max(self._tops(given), key=lambda top: levels(top[1]))
            raise self.refusal(TooDeep(path)) from None
        except Misfit as misfit:
            raise self.refusal(misfit) from misfit.__cause__
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

    def refusal(self, misfit: Misfit) -> PayloadError:
        """What callers see of a misfit."""
        return PayloadError(self.subject, misfit.path.removeprefix("."), misfit.problem)

    def _write(self, given: object) -> bytes:
        try:
            payload = ENCODER.encode({"v": VERSION, self.content: given})
        except RecursionError:
            raise
        except Exception as error:  # models and enums run the user's own code, which may raise anything
            raise (unwritable(self._tops(given)) or Misfit(f"cannot be written as JSON: {error}")) from error
        if len(payload) > self.limit:
            advice = "keep it elsewhere and pass its key"
            raise Misfit(f"{len(payload):,} bytes of JSON, the limit is {self.limit:,}; {advice}")
        return payload

    def _rehearse(self, payload: bytes, given: Any) -> None:  # noqa: ANN401 - as above
        """Read back what was just written, as it will be read later, and compare."""
        try:
            content = self.decoder.decode(payload).content
            if self.content == "value":
                misfit = None if same(given, content) else difference(given, content)
            else:
                misfit = self._differing(given, content)
        except (TooDeep, RecursionError):
            raise
        except msgspec.ValidationError as error:
            raise self._place(msgspec.json.decode(payload), error, given) from error
        except Exception as error:  # constructors, validators and `==` are the user's own code
            raise Misfit(f"cannot be read back and compared: {type(error).__name__}: {error}") from error
        if misfit is None and not self.search_always:
            return
        stranger = self._stranger(msgspec.json.decode(payload))
        if misfit is not None and (stranger is None or stranger.path != misfit.path):
            raise misfit
        if stranger is not None:
            raise stranger

    def _differing(self, bound: dict[str, object], content: msgspec.Struct) -> Misfit | None:
        for name, value in bound.items():
            back = getattr(content, self.fields[name])
            if not same(value, back):
                return difference(value, back).under(field_step(name))
        return None

    def _tops(self, given: Any) -> list[tuple[str, object]]:  # noqa: ANN401 - as above
        """Where paths begin: the arguments, or the one value."""
        if self.content == "value":
            return [("", given)]
        return [(field_step(name), value) for name, value in given.items()]

    def _stranger(self, raw: Any) -> Misfit | None:  # noqa: ANN401 - any JSON
        try:
            self.search(raw[self.content])
        except Misfit as misfit:
            return misfit
        return None

    def _blame(self, payload: bytes, error: Exception) -> Misfit:
        """Find out why a payload did not open."""
        raw: Any = {}
        try:
            raw = msgspec.json.decode(payload)
            found = self._no_envelope(raw) or self._stranger(raw)
        except RecursionError:
            return TooDeep()
        except msgspec.ValidationError:  # a number too long to be read by anyone, so there is nothing to look into
            found = None
        except (msgspec.DecodeError, UnicodeDecodeError) as malformed:
            return Misfit(f"this is no JSON: {malformed}")
        if found is None and isinstance(error, msgspec.ValidationError):
            return self._place(raw, error)
        return found or Misfit(f"cannot be read: {type(error).__name__}: {error}")

    def _no_envelope(self, raw: object) -> Misfit | None:
        version = raw.get("v") if isinstance(raw, dict) else None
        if type(version) is int and version > VERSION:
            advice = f"this one reads format {VERSION}"
            return Misfit(f"a newer version of Mainspring wrote this (format {version}); {advice}")
        if not isinstance(raw, dict) or version != VERSION or raw.keys() != {"v", self.content}:
            return Misfit(f'this is no payload: expected {{"v":{VERSION},"{self.content}":…}}')
        return None

    def _place(self, raw: dict[str, Any], error: msgspec.ValidationError, given: object = UNSET) -> Misfit:
        """Turn msgspec's message into a path and a problem, in terms of what was given if that is known."""
        message, cause = str(error), error.__cause__
        place = _PLACE.search(message)
        problem = message[: place.start()] if place else message
        steps, part = self._follow(raw, given, place, message)
        lacking = _MISSING.fullmatch(problem)
        if isinstance(cause, Misfit):  # from within a model, which knows more
            misfit = Misfit(cause.problem, cause.path)
        elif cause is not None:  # from a constructor of the user's, in words of its own
            misfit = Misfit(problem)
        elif lacking:
            misfit = missing("field" if steps or self.content == "value" else "argument", lacking["name"])
        else:
            misfit = Misfit(told(problem)) if given is UNSET or part is UNSET else _reworded(problem, part)
        for step in reversed(steps):
            misfit.under(step)
        return misfit

    def _follow(
        self, raw: dict[str, Any], given: object, place: "re.Match[str] | None", message: str
    ) -> tuple[list[str], object]:
        """Walk msgspec's steps through the JSON and what it was written from, or through the JSON alone."""
        text = place["steps"].removeprefix(f".{self.content}") if place else ""
        steps: list[str] = []
        try:
            node = raw[self.content]
            part: Any = node if given is UNSET else given
            for match in _STEP.finditer(text):
                index, name = match["index"], match["name"]
                key = int(index) if index else name or self._culprit(raw, node, message)
                step, inner = part_at(part, node, key)
                steps.append(field_step(name) if name and isinstance(part, dict) else step)
                node, part = node[key], inner
            if place and place["key"]:
                steps.append(KEY)
                part = [*part][[*node].index(self._culprit(raw, node, message))]
        except (LookupError, TypeError, ValueError):  # a dot or a bracket in a name, or nothing that could be read
            return [text, *([KEY] if place and place["key"] else ())], UNSET
        return steps, part

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


def decoder_of(declared: object, content: Literal["args", "value"]) -> "msgspec.json.Decoder[Any]":
    """The decoder of an envelope whose content is of this type."""
    fields: Any = [("v", Literal[VERSION]), ("content", declared)]
    struct = msgspec.defstruct("Envelope", fields, rename={"content": content}, forbid_unknown_fields=True)
    return msgspec.json.Decoder(struct, dec_hook=read)


def _reworded(problem: str, value: object) -> Misfit:
    """Say what msgspec says of the JSON, of the value that it was written from."""
    mismatch = _WRONG.fullmatch(problem)
    if mismatch:
        return wrong((mismatch[1] or mismatch[2]).replace("null", "None"), value)
    return Misfit(told(problem) + (f", from a `{name_of(type(value))}`" if problem.startswith("Invalid") else ""))
