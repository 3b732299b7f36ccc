"""The distance to the mean, measured by the scatter of the rows."""

from .detector import Mahalanobis

__all__ = ["Mahalanobis"]
