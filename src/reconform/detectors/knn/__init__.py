"""kNN: a row is unusual if its nearest reference rows are far away."""

from .detector import KNN

__all__ = ["KNN"]
