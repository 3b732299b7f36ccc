"""Decisions and drift alarms as rows arrive; both survive a crash."""

from __future__ import annotations

from .evidence import Evidence, chart
from .monitor import ExchangeabilityMonitor, MonitorReport
from .online import OnlineDiscoveries, StreamDecisions

__all__ = [
    "Evidence",
    "ExchangeabilityMonitor",
    "MonitorReport",
    "OnlineDiscoveries",
    "StreamDecisions",
    "chart",
]
