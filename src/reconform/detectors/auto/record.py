"""How `Auto` is saved. Its ensembles are those of the candidates, which have records themselves."""

from __future__ import annotations

from ...records.specs import Detector, DetectorRecord

AUTO_RECORD = DetectorRecord("Auto", {"fitted_": Detector(fitted=True)})
