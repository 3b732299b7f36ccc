"""Numba functions on arrays; no classes, no input or output."""
