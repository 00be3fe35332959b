"""The static files: style sheets and scripts. They come with the package; nothing is loaded from elsewhere."""

from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mainspring.web.answers import ISOLATED

KINDS: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
FOR_GOOD: Final = "public, max-age=31536000, immutable"


def _found(folder: Traversable, above: str = "") -> dict[str, bytes]:
    files_: dict[str, bytes] = {}
    for one in folder.iterdir():
        name = above + one.name
        if one.is_dir():
            files_ |= _found(one, f"{name}/")
        elif any(name.endswith(ending) for ending in KINDS):
            files_[name] = one.read_bytes()
    return files_


FILES: Final = _found(files("mainspring.web") / "static")
VERSIONS: Final = {name: sha256(body).hexdigest()[:12] for name, body in FILES.items()}
"""What stands behind a file's name in its address: another once its content is."""


async def static(request: Request) -> Response:
    """Send a static file. Whoever asks for the version that it has may keep it for good."""
    name = request.path_params["name"]
    body = FILES.get(name)
    if body is None:
        return Response(
            "there is no such file", 404, media_type="text/plain", headers={**ISOLATED, "cache-control": "no-store"}
        )
    kept = FOR_GOOD if request.query_params.get("v") == VERSIONS[name] else "no-cache"
    headers = {**ISOLATED, "cache-control": kept, "etag": f'"{VERSIONS[name]}"'}
    return Response(body, headers=headers, media_type=KINDS[name[name.rindex(".") :]])
