"""What a worker logs, to stderr: lines for people, or JSON for collectors. Lines of handlers name their job."""

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from mainspring.cli.echo import visible, visible_json
from mainspring.runtime.call import current_call

LEVELS: Final = ("debug", "info", "warning", "error")


def set_up_logging(level: str, *, as_json: bool, with_process: bool = False) -> None:
    """Send everything of this level and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(name_job)
    handler.setFormatter(JsonLines() if as_json else Lines(with_process=with_process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def name_job(record: logging.LogRecord) -> bool:
    """Note which job was at work where a line was logged."""
    call = current_call.get()
    record.job, record.task = (str(call.job), call.task) if call else (None, None)
    return True


class Lines(logging.Formatter):
    """For people: the local time, the level, who, what, and for which job."""

    def __init__(self, *, with_process: bool) -> None:
        process = "[%(process)d] " if with_process else ""
        super().__init__(f"%(asctime)s.%(msecs)03d %(levelname)-7s {process}%(name)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        line = super().formatMessage(record)
        job, task = record.__dict__.get("job"), record.__dict__.get("task")
        return f"{line} (job {job}, {task})" if job else line


class JsonLines(logging.Formatter):
    """For collectors: one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "job": record.__dict__.get("job"),
            "task": record.__dict__.get("task"),
            "traceback": self.formatException(record.exc_info) if record.exc_info else None,
        }
        encoded = msgspec.json.encode({key: value for key, value in line.items() if value is not None})
        return visible_json(encoded.decode())
