"""How many neighbours a row is given where reference and new rows are fitted together."""

from __future__ import annotations

from ...errors import check_count

# Up to so large a share of the new rows may be anomalies that resemble each other.
MOST_ALIKE = 5
# The table of the distances of all rows stays within so many numbers.
MOST_DISTANCES = 1 << 25


def neighbours_among(count: int, n: int, m: int) -> int:
    """Say how many neighbours are looked at: a fifth of the new rows, by their numbers alone.

    Anomalies that resemble each other have each other for neighbours. A row among fewer of them
    than there are neighbours has to look further, to the reference.

    Parameters
    ----------
    count : int
        What the detector was given; never fewer.
    n, m : int
        Reference rows, and new rows.

    Examples
    --------
    >>> neighbours_among(5, 1_000, 300), neighbours_among(5, 1_000, 10)
    (60, 5)
    >>> neighbours_among(5, 100_000, 100_000)  # tables of more distances do not fit
    167
    """
    count = check_count("n_neighbors", count, least=1)
    return max(count, min(m // MOST_ALIKE, MOST_DISTANCES // max(n + m, 1)))
