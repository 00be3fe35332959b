"""Mainspring runs background work that must not be lost.

An app holds tasks, and a store keeps their jobs: `Mainspring`. Beside it stand supervised services
(`mainspring.supervise`) and virtual time for tests (`mainspring.testing`).
"""

from mainspring.app import Mainspring
from mainspring.client.plugin import Plugin
from mainspring.core.breaker import Breaker
from mainspring.core.job import Retention
from mainspring.core.limits import Limit
from mainspring.core.missed import Missed
from mainspring.core.outcome import Fail, RetryIn, Snooze
from mainspring.core.retry import Retry
from mainspring.core.rules import Cron, Every, Manual, Once
from mainspring.core.unique import Unique
from mainspring.errors import MainspringError
from mainspring.handle import JobHandle
from mainspring.outbox.message import Message
from mainspring.runtime.context import Context
from mainspring.runtime.service import ServiceContext
from mainspring.supervise.directive import Idle, Proceed, Sleep
from mainspring.task import Task

__all__ = [
    "Breaker",
    "Context",
    "Cron",
    "Every",
    "Fail",
    "Idle",
    "JobHandle",
    "Limit",
    "Mainspring",
    "MainspringError",
    "Manual",
    "Message",
    "Missed",
    "Once",
    "Plugin",
    "Proceed",
    "Retention",
    "Retry",
    "RetryIn",
    "ServiceContext",
    "Sleep",
    "Snooze",
    "Task",
    "Unique",
]
