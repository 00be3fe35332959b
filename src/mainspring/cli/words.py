"""Who says so."""

import getpass
import platform


def me() -> str:
    """Name whoever types: user and machine."""
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return platform.node()
