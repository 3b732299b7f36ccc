"""The steps of `ConformalDetector`: rows taken in, models fitted by a plan, ranks, decisions."""
