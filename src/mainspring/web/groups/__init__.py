"""What can be asked for, one module for each part of the store. A new group is a module with `ROUTES`, and a line here."""

from typing import Final

from mainspring.web.groups import (
    audit,
    breakers,
    control,
    jobs,
    nodes,
    outboxes,
    overview,
    plugins,
    queues,
    schedules,
    services,
)
from mainspring.web.routes import AnyRoute

ALL: Final[tuple[AnyRoute, ...]] = (
    *overview.ROUTES,
    *jobs.ROUTES,
    *queues.ROUTES,
    *schedules.ROUTES,
    *nodes.ROUTES,
    *services.ROUTES,
    *outboxes.ROUTES,
    *breakers.ROUTES,
    *plugins.ROUTES,
    *audit.ROUTES,
    *control.ROUTES,
)
