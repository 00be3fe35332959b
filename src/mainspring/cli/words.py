"""Who says so."""

import os
import platform
import pwd


def me() -> str:
    """Name whoever types: user and machine. It is the user that the system knows, and not what a variable says."""
    user = os.getuid()
    try:
        return f"{pwd.getpwuid(user).pw_name}@{platform.node()}"
    except KeyError:  # a user id without a name, as in many containers
        return f"{user}@{platform.node()}"
