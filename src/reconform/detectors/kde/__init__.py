"""Kernel density: how many other rows are near, weighed by a Gaussian kernel."""

from .detector import KDE

__all__ = ["KDE"]
