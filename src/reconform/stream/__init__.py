"""Decisions and drift alarms as rows arrive; all of them survive a crash."""

from __future__ import annotations

from .budget import FalseAlarmBudget, OutlookWarning, StreamDecisions
from .changes import Change, ChangeMonitor, ChangeReport
from .evidence import Evidence, chart
from .monitor import ExchangeabilityMonitor, MonitorReport
from .windows import MicroBatches, WindowDecisions

__all__ = [
    "Change",
    "ChangeMonitor",
    "ChangeReport",
    "Evidence",
    "ExchangeabilityMonitor",
    "FalseAlarmBudget",
    "MicroBatches",
    "MonitorReport",
    "OutlookWarning",
    "StreamDecisions",
    "WindowDecisions",
    "chart",
]
