"""Beginning of a JSON document, completed so that it can be decoded.

Stores return the first bytes of a long payload. Here these are cut back to the last complete value, or to the middle of a
text value, and open brackets are closed. Pure, and linear in the bytes that were read.
"""

import codecs
import re
from typing import Final, NamedTuple

PREVIEW_BYTES: Final = 2000
"""Bytes of a payload that lists read: a page shows 120 characters of them."""
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?P<closed>")?|[\[\]{},:]', re.DOTALL)
_CLOSING: Final = {"{": "}", "[": "]"}
_HALF_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")
_HALF_PAIR: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")


class Completed(NamedTuple):
    """A JSON text, and how many containers were open where it was cut: the last one at each level."""

    text: str
    open: int


def completed(beginning: bytes) -> Completed | None:
    """Complete the beginning of a JSON document; None if no document begins like that."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(beginning)
    except UnicodeDecodeError:
        return None
    opened: list[str] = []
    end, before = (
        0,
        "",
    )  # every token that changes `opened` is a good end, so that the brackets of the last one are known
    for token in _TOKEN.finditer(text):
        mark = token[0][0]
        if mark == '"' and token["closed"] is None:
            is_value = before == ":" or (before in {"[", ","} and opened[-1] == "[")
            if is_value:
                text = _cut_text(text) + '"'
                end = len(text)
            break
        if mark in _CLOSING:
            opened.append(mark)
            end = token.end()
        elif mark in "}]":
            if not opened:
                return None
            opened.pop()
            end = token.end()
        elif mark in ",:" and not opened:
            return None
        elif mark == ",":
            end = token.start()
        before = mark
    closing = "".join(_CLOSING[mark] for mark in reversed(opened))
    return Completed(text[:end] + closing, len(opened)) if end else None


def _cut_text(text: str) -> str:
    """Leave out half of an escape sequence, or of a pair of them, at the end of an unfinished text value."""
    for half in (_HALF_ESCAPE, _HALF_PAIR):
        found = half.search(text)
        if found and _is_escape(text, found.start()):
            text = text[: found.start()]
    return text


def _is_escape(text: str, at: int) -> bool:
    """Whether the backslash at a position begins an escape sequence, and is not the second of two."""
    before = text[:at]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 0
