"""Mainspring runs background work that must not be lost.

Today: the pure rules of a job's life, and supervised services (`mainspring.supervise`) with virtual time for tests
(`mainspring.testing`).
"""

from mainspring.core.breaker import Breaker
from mainspring.core.outcome import Fail, RetryIn, Snooze
from mainspring.core.retry import Retry
from mainspring.errors import MainspringError
from mainspring.supervise.directive import Idle, Proceed, Sleep

__all__ = [
    "Breaker",
    "Fail",
    "Idle",
    "MainspringError",
    "Proceed",
    "Retry",
    "RetryIn",
    "Sleep",
    "Snooze",
]
