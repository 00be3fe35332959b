"""Mainspring over HTTP: `dashboard(app, auth=…)`, with pages, and `api(app, auth=…)`, without, are ASGI apps.

Each is served alone or mounted in another. Needs the extra `dashboard`.

Closed by default: without `auth` it answers to this machine only.
"""

try:
    import jinja2 as _jinja2  # noqa: F401 - looked for here, so that what is missing is told by its name
    import starlette as _starlette  # noqa: F401 - as above
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mainspring.web needs Starlette and Jinja2: install Mainspring with the extra 'dashboard'", name=error.name
    ) from error

from mainspring.web.application import api
from mainspring.web.auth import ROLES, Auth, Identity, Password, Permission, StartupToken, TokenFile
from mainspring.web.dashboard import Dashboard, dashboard
from mainspring.web.gate import must_have_auth

__all__ = [
    "ROLES",
    "Auth",
    "Dashboard",
    "Identity",
    "Password",
    "Permission",
    "StartupToken",
    "TokenFile",
    "api",
    "dashboard",
    "must_have_auth",
]
