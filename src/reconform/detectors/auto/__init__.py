"""Auto: several detectors are tried, and every new row is judged by one that is chosen for it."""

from .detector import Auto

__all__ = ["Auto"]
