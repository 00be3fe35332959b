"""Which of two releases came first, as far as their names tell.

A release that begins with a number has an order: `1.10` comes after `1.9`, and `v2.0.0-rc1` before `2.0.0`. Every other
name has none, such as that of a branch or a commit; of two such nobody can say which is older.
"""

import re
from typing import Final

_BEFORE: Final = frozenset(
    {"dev", "snapshot", "nightly", "canary", "a", "alpha", "b", "beta", "m", "milestone", "c", "pre", "preview", "rc"}
)
"""Words of what comes before the release itself. Any other, as in `2.0.0-hotfix1`, is of one that comes after it."""
_VERSION: Final = re.compile("v?[0-9]")
_COMMIT: Final = re.compile("(?=[0-9]*[a-f])[0-9a-f]{7,64}")  # 3f2a91c counts nothing, although it begins with a digit


def is_older(release: str, than: str) -> bool:
    """Say whether a release came before another; False if their names do not tell."""
    return has_order(release) and has_order(than) and _order(release) < _order(than)


def has_order(release: str) -> bool:
    """Say whether a release can be compared with others."""
    return bool(_VERSION.match(release.lower())) and not _COMMIT.fullmatch(release.lower())


def _order(release: str) -> list[tuple[int, int, str]]:
    """Compare part by part: what precedes a release, its end, what is added to it, the next number."""
    parts = re.findall("[0-9]+|[a-z]+", release.lower().removeprefix("v"))
    end = (1, 0, "")
    return [*((3, int(part), "") if part.isdigit() else (0 if part in _BEFORE else 2, 0, part) for part in parts), end]
