"""Why a row stands out: its unusual features, the nearest normal rows, what carries its score.

Descriptions of a row, worked out when they are asked for. None of it changes a decision, and none
is a proof of a cause.
"""

from __future__ import annotations

from .explainer import (
    NO_REFERENCE,
    Explainer,
    Known,
    explainer_for,
    known_rows,
    refuse_without_reference,
    words_of,
)

__all__ = [
    "NO_REFERENCE",
    "Explainer",
    "Known",
    "explainer_for",
    "known_rows",
    "refuse_without_reference",
    "words_of",
]
