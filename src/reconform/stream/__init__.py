"""Decisions and drift alarms as rows arrive; all of them survive a crash."""

from __future__ import annotations

from .decisions import (
    DecayingMemory,
    FalseAlarmBudget,
    MicroBatches,
    OutlookWarning,
)
from .monitor import Change, ChangeMonitor, ExchangeabilityMonitor, MonitorReport
from .state import StreamDecisions
from .windows import DecidedWindow, WindowStream

__all__ = [
    "Change",
    "ChangeMonitor",
    "DecayingMemory",
    "DecidedWindow",
    "ExchangeabilityMonitor",
    "FalseAlarmBudget",
    "MicroBatches",
    "MonitorReport",
    "OutlookWarning",
    "StreamDecisions",
    "WindowStream",
]
