"""What a node says when it is asked where it stands, taken apart: one part for each of its threads and tasks."""

import re
from typing import Final
from uuid import UUID

from msgspec import Struct

from mainspring.core.job import JobId

_JOB: Final = re.compile(r" of job (?P<id>[0-9a-f-]{36}) \(.*\)$")
"""As `runtime.stacks` writes it at the end of the first line of a part."""


class Stack(Struct, frozen=True, kw_only=True):
    """Where one thread or asyncio task stands."""

    title: str
    """Which, as "task claimer"."""
    job: JobId | None = None
    """The job whose attempt runs there."""
    text: str
    """Its frames, the innermost last; nothing where it has not begun."""


def parts_of(answer: str) -> tuple[Stack, ...]:
    """Take an answer apart; those that run a job come first."""
    parts: list[list[str]] = []
    for line in answer.splitlines():
        if line and not line.startswith(" "):
            parts.append([line])
        elif parts:
            parts[-1].append(line)
    found = [_stack(title, "\n".join(lines).strip("\n")) for title, *lines in parts]
    return tuple(sorted(found, key=lambda one: (one.job is None, str(one.job or ""), one.title)))


def _stack(title: str, text: str) -> Stack:
    job = _JOB.search(title)
    if job is None:
        return Stack(title=title, text=text)
    try:
        return Stack(title=title, job=JobId(UUID(job["id"])), text=text)
    except ValueError:  # a name that only looks like it
        return Stack(title=title, text=text)
