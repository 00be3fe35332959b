"""The server's side: pages of the dashboard and their twins in JSON, asked for in this process, without a network."""

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlencode

import httpx

from bench.looking.names import KEYS, QUEUES, RARE_KEY, RARE_QUEUE, RARE_TASK, TASKS
from mainspring import Mainspring
from mainspring.core.job import JobId, State
from mainspring.web import dashboard

LOOKED_FOR = {
    **{f"state {state}": {"state": state.value} for state in State},
    "queue": {"queue": QUEUES[0]},
    "queue, rare": {"queue": RARE_QUEUE},
    "task": {"task": str(TASKS[5])},
    "task, rare": {"task": str(RARE_TASK)},
    "key": {"key": KEYS[0]},
    "key, rare": {"key": RARE_KEY},
    "failed of a task and queue": {"state": "failed", "task": str(TASKS[5]), "queue": QUEUES[0]},
}
WALKED_FOR = {
    "error text of some": {"error": "no such USER"},
    "error text that none has": {"error": "no such thing"},
    "argument that none has": {"argument": "order.number=-1"},
}


class Request(NamedTuple):
    """Something that is asked for."""

    words: str
    path: str
    indexed: bool = True


def requests(job: JobId, middle: JobId) -> Iterator[Request]:
    """Name them all: what is shown of everything, of one job, and of searches."""
    yield Request("overview, an hour", "")
    yield Request("overview, a day", "?minutes=1440")
    yield Request("overview, a live update", "?part=now")
    yield Request("overview, JSON", "api/v1/overview")
    yield Request("jobs", "jobs")
    yield Request("jobs, a live update", "jobs?part=rows")
    yield Request("jobs from the middle", f"jobs?after={middle}")
    yield Request("jobs, JSON", "api/v1/jobs/list")
    yield Request("one job", f"job?id={job}")
    yield Request("one job, JSON", f"api/v1/jobs/show?id={job}")
    for words, said in LOOKED_FOR.items():
        yield Request(words, f"jobs?{urlencode(said)}")
        yield Request(f"{words}, JSON", f"api/v1/jobs/list?{urlencode(said)}")
    for words, said in WALKED_FOR.items():
        yield Request(f"{words}, JSON", f"api/v1/jobs/list?{urlencode(said)}", indexed=False)


class Served:
    """A dashboard that is asked."""

    def __init__(self, app: Mainspring) -> None:
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(dashboard(app)), base_url="http://127.0.0.1/")

    async def get(self, path: str) -> httpx.Response:
        answer = await self._client.get(path)
        answer.raise_for_status()
        return answer
