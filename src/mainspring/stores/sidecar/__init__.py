"""A store in one JSON file, for programs without a database: it keeps schedules, and the jobs that they have open."""

from mainspring.stores.sidecar.adoption import Unread
from mainspring.stores.sidecar.store import SidecarStore

__all__ = ["SidecarStore", "Unread"]
