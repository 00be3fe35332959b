"""Supervised services: loops that run for as long as their program, and tell what they do.

Usable alone: nothing here knows of jobs or stores.
"""

from mainspring.core.backoff import Backoff
from mainspring.supervise.bulkhead import Bulkhead, Lane
from mainspring.supervise.directive import Directive, Idle, Proceed, Sleep
from mainspring.supervise.listener import (
    Completed,
    Executing,
    Failed,
    Idling,
    Listener,
    ServiceEvent,
    Sleeping,
    Started,
    Stats,
    Stopped,
    log_failures,
)
from mainspring.supervise.notify import Interval, Notifier, Wake, every
from mainspring.supervise.pacing import NO_PAUSE, Pacing
from mainspring.supervise.service import Service
from mainspring.supervise.stop import Stop
from mainspring.supervise.taskset import Ending, TaskEnd, TaskSet

__all__ = [
    "NO_PAUSE",
    "Backoff",
    "Bulkhead",
    "Completed",
    "Directive",
    "Ending",
    "Executing",
    "Failed",
    "Idle",
    "Idling",
    "Interval",
    "Lane",
    "Listener",
    "Notifier",
    "Pacing",
    "Proceed",
    "Service",
    "ServiceEvent",
    "Sleep",
    "Sleeping",
    "Started",
    "Stats",
    "Stop",
    "Stopped",
    "TaskEnd",
    "TaskSet",
    "Wake",
    "every",
    "log_failures",
]
