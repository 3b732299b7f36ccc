"""Contrast: a row is unusual if it is far from reference rows, and near to other new rows."""

from .detector import Contrast

__all__ = ["Contrast"]
