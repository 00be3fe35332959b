"""What a check has found, as the doctor tells it."""

from mainspring.client.health.finding import Finding, Level, fail, ok, warn

__all__ = ["Finding", "Level", "fail", "ok", "warn"]
