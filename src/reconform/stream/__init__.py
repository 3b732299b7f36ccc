"""Decisions and drift alarms as rows arrive; all of them survive a crash."""

from __future__ import annotations

from .budget import DecayingMemory, FalseAlarmBudget, OutlookWarning, StreamDecisions
from .monitor import Change, ChangeMonitor, ChangeReport, ExchangeabilityMonitor, MonitorReport
from .windows import MicroBatches, WindowDecisions

__all__ = [
    "Change",
    "ChangeMonitor",
    "ChangeReport",
    "DecayingMemory",
    "ExchangeabilityMonitor",
    "FalseAlarmBudget",
    "MicroBatches",
    "MonitorReport",
    "OutlookWarning",
    "StreamDecisions",
    "WindowDecisions",
]
