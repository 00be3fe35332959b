"""Plugins: what a program lets others add to it, and the few powers that it hands them.

A `Plugin` brings tasks, schedules and services under one namespace. Whoever embeds it says what it may do, by granting
capabilities; each of them is asked for again where it is used.
"""

from mainspring.plugins.capability import (
    BackgroundJobs,
    Capability,
    EnqueueTasks,
    HostWrite,
    Schedules,
    Services,
)
from mainspring.runtime.host import Host
from mainspring.runtime.job_host import JobHost
from mainspring.runtime.reported import Done, DoneAndReschedule, Failed, JobOutcome

__all__ = [
    "BackgroundJobs",
    "Capability",
    "Done",
    "DoneAndReschedule",
    "EnqueueTasks",
    "Failed",
    "Host",
    "HostWrite",
    "JobHost",
    "JobOutcome",
    "Schedules",
    "Services",
]
