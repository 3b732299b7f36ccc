"""Ranks, p-values, error-rate control and certificates: functions of arrays, without detectors."""
