"""Decisions and drift alarms as rows arrive; all of them survive a crash."""

from __future__ import annotations

from .budget import FalseAlarmBudget, OutlookWarning, StreamDecisions
from .monitor import (
    Change,
    ChangeMonitor,
    ChangeReport,
    Evidence,
    ExchangeabilityMonitor,
    MonitorReport,
    chart,
)
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
