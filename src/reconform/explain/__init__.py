"""Why a row stands out: its unusual features, the nearest normal rows, what carries its score."""

from __future__ import annotations

from .explainer import NO_REFERENCE, Explainer, Known, explainer_for, label_in

__all__ = ["NO_REFERENCE", "Explainer", "Known", "explainer_for", "label_in"]
