"""Mainspring over HTTP: `api(app, auth=…)` is an ASGI app, to be served alone or mounted in another. Needs the extra `web`.

Closed by default: without `auth` it answers to this machine only.
"""

try:
    import starlette as _starlette  # noqa: F401 - looked for here, so that what is missing is told by its name
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mainspring.web needs Starlette: pip install 'mainspring[web]'", name=error.name
    ) from error

from mainspring.web.application import api
from mainspring.web.auth import ROLES, Auth, Identity, Password, Permission, TokenFile
from mainspring.web.gate import must_have_auth

__all__ = ["ROLES", "Auth", "Identity", "Password", "Permission", "TokenFile", "api", "must_have_auth"]
