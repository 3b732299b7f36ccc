"""INNE: a row is unusual if it lies outside the spheres around randomly drawn rows."""

from .detector import INNE

__all__ = ["INNE"]
