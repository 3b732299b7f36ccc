"""Isolation forest: a row is unusual if random splits separate it from the others quickly."""

from .detector import IForest

__all__ = ["IForest"]
