"""What was found, to look at: an HTML page, and the same charts for notebooks."""

from __future__ import annotations

from .charts import chart
from .page import report

__all__ = ["chart", "report"]
