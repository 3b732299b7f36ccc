"""LOF: a row is unusual if the rows around it lie much closer together than it does to them."""

from .detector import LOF

__all__ = ["LOF"]
