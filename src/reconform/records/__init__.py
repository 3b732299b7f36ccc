"""How values become JSON and arrays, and back; what is saved of a class is described by these.

`specs` has the descriptions, `plain` the one of any plain value, `checks` what must hold for values
from a file. Each detector describes itself in its folder (`record.py`); `reconform.models` collects
the descriptions from the registry of detectors.
"""
