"""Length of keys: the texts under which jobs are limited and unique.

A key is part of an index entry, whose size databases bound. PostgreSQL takes 2,704 bytes, in which the longest name of
a task (2,044 bytes), a key and some 50 bytes more have to fit.
"""

import hashlib
from typing import Final

MAX_KEY_BYTES: Final = 200
"""Length in UTF-8 up to which a key is kept as it is; a longer one is kept as its hash."""


def key_length(key: str) -> int:
    """Return the length of a key in bytes of UTF-8."""
    return len(key) if key.isascii() else len(key.encode("utf-8", "surrogatepass"))


def shorten_key(key: str) -> str:
    """Return a key that every store accepts: the key itself, or its hash."""
    if key_length(key) <= MAX_KEY_BYTES:
        return key
    return f"sha256:{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"
