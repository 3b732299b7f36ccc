"""Why a row stands out: its unusual features, the nearest normal rows, what carries its score.

Descriptions of a row, worked out when they are asked for. None of it changes a decision, and none
is a proof of a cause.
"""

from __future__ import annotations

from .explainer import Explainer
from .known import Known

__all__ = ["Explainer", "Known"]
