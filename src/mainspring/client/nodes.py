"""What can be said about a node where it is started: `app.node(concurrency=20, queues=["mail"])`."""

from collections.abc import Iterable
from dataclasses import fields
from typing import TypedDict

from mainspring.client.options import read_all, read_queue, read_texts
from mainspring.duration import Duration
from mainspring.errors import DeclarationError
from mainspring.settings import NodeSettings


class NodeOptions(TypedDict, total=False):
    """The fields of `NodeSettings`, which says what they mean."""

    concurrency: int
    queues: str | Iterable[str] | None
    processes: int
    lease: Duration
    grace: Duration
    stop_grace: Duration
    timeout: Duration
    unknown_task_grace: Duration
    prune_every: Duration
    ticker: bool
    outbox_partitions: int
    tick: Duration | None
    overview: bool


def node_settings(given: NodeOptions) -> NodeSettings:
    """Read the settings of a node, or raise `DeclarationError`."""
    known = {field.name: _as_it_is for field in fields(NodeSettings)}
    values, problems = read_all(given, {**known, "queues": _read_queues})
    DeclarationError.unless("node", ((False, problem) for problem in problems))
    return NodeSettings(**values)


def _as_it_is(value: object) -> object:
    return value


def _read_queues(value: object) -> tuple[str, ...]:
    return tuple(read_queue(name) for name in read_texts(value))
