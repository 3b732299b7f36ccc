"""The words that results and reports use, each in a sentence; docs/glossary.md has all of them."""

from __future__ import annotations

GLOSSARY = {
    "reference": "Rows that are known to be normal: what new rows are compared with.",
    "anomaly": "A row that does not come from the process that made the normal rows.",
    "flagged": "Named as an anomaly by this list, rightly or not.",
    "score": "How normal a row looks to the detector; small means unusual.",
    "calibration": "Scoring reference rows by models that have not seen them, for comparison.",
    "p-value": "How often a normal row would look at least this unusual.",
    "q-value": "The smallest false discovery rate at which the row would be flagged.",
    "e-value": "Evidence against the row being normal: at most 1 on average if it is.",
    "false discovery rate": "The share of false alarms among flagged rows, on average over "
    "repetitions.",
    "exchangeable": "In no particular order: reference rows and normal new rows come from one "
    "process, as if shuffled.",
    "proven": "A theorem says that the rate is kept, if rows are exchangeable.",
    "measured": "Experiments say that the rate is kept, and no theorem does.",
    "jab+": "The method that fits models on random draws of the reference rows, and scores each "
    "reference row by the models that did not draw it.",
}
