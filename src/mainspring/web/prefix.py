"""Under which prefix an app is reached: mounted, behind a proxy that takes one away, or both."""

from collections.abc import Collection
from typing import Final
from urllib.parse import quote

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send


class Prefixed:
    """Finds the routes under whatever prefix. `known` are the first words of all paths that are ours.

    Mounted in an app with a `root_path`, behind a proxy that takes that away, a path begins with the end of its
    `root_path` only; Starlette looks for the whole, and finds nothing.
    """

    def __init__(self, app: ASGIApp, known: Collection[str]) -> None:
        self._app: Final = app
        self._known: Final = frozenset(known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            root = scope.get("root_path", "").rstrip("/")
            path = inner(scope["path"], root, self._known)
            if not path:  # the prefix without its slash: what is relative on the page would lead beside it
                there = quote(root.rpartition("/")[2])
                await Response(status_code=307, headers={"location": f"./{there}/"})(scope, receive, send)
                return
            scope = {**scope, "root_path": root, "path": root + path}
        await self._app(scope, receive, send)


def inner(path: str, root: str, known: Collection[str]) -> str:
    """Return the part of a path that is ours, below all of a prefix, an end of it, or nothing; empty: the prefix itself."""
    ends = [root[at:] for at, letter in enumerate(root) if letter == "/"]
    if "" in known and path in ends:  # also where it is named as a page: mounted at /jobs, that is no page of ours
        return ""
    found = [path[len(end) :] for end in ends if path.startswith(f"{end}/")]
    return next((one for one in (*found, path) if one.split("/")[1:2] and one.split("/")[1] in known), path)
