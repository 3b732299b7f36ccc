"""The paper's data sets, which are read by a module in results/."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "results"))

from paper_data import REGISTRY, load

__all__ = ["REGISTRY", "load"]
