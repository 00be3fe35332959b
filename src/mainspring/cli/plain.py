"""Records as JSON for programs: one object a line, in the form that the JSON API answers with too."""

import msgspec

from mainspring.cli.echo import echo, visible_json
from mainspring.client.plain import plain, read, unfolded

__all__ = ["plain", "print_json", "read", "unfolded"]


def print_json(*values: object) -> None:
    """Print each value as a line of JSON."""
    for value in values:
        echo(visible_json(msgspec.json.encode(plain(value)).decode()))
