"""Columns that look like ids, constants or times, labels that are new or gone, missing values.

Each check says at most so often something about two files of one process: where it is a theorem it
needs only that reference rows and normal new rows are exchangeable, and that at most a stated share
of the new rows are anomalies. Tests of labels are Fisher's, on a property of a row that is fixed
before the rows are compared: to have one label, or one of the labels of half of the reference.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import gammaln

from ..arrays import BoolArray, FloatArray
from ..ensemble.refitting import LARGEST
from ..errors import ReferenceWarning, listed, warn_once
from ..frames import label_code
from ..statistics.chances import at_most_marked
from .shift import normal_rows_at_least
from .verdict import Finding

# False-alarm rates of this check over all columns of a batch.
BROKEN = 1e-3
DOUBTFUL = 5e-3

# Numbers that no column repeats are named if they are so long and of one length.
FEWEST_DIGITS = 6

# A batch with very many odd columns is said in a few sentences.
MOST_FINDINGS = 5


# Codes for missing are this large, and so many times as large as all other numbers of a column
# (Cauchy's law has such a gap once in a million samples); of no more than this share of the rows.
LEAST_CODE = 1e9
LEAST_GAP = 1e6
MOST_CODES = 0.1


def code_findings(X: FloatArray, names: Sequence[str], whose: str) -> list[Finding]:
    """Name columns with a few numbers that are far larger than all others.

    Examples
    --------
    >>> import numpy as np
    >>> flow = np.append(np.linspace(1.0, 9.0, 40), [9.96921e36, -9.96921e36])
    >>> print(*code_findings(flow[:, None], ["flow"], "reference"))
    Column 'flow' has values of up to 9.97e+36 in 2 of 42 reference rows, more than a million times
    as large as all others: a code for missing? If it is, mark these cells as missing, or leave the
    rows out.
    """
    found = []
    sizes = np.abs(X)
    for j in np.flatnonzero(np.nanmax(sizes, axis=0, initial=0.0) >= LEAST_CODE).tolist():
        ordered = np.sort(sizes[~np.isnan(sizes[:, j]), j])
        first = len(ordered) - int(len(ordered) * MOST_CODES)
        top = ordered[max(first, 1) - 1 :]
        gaps = (top[1:] >= LEAST_CODE) & (top[1:] / LEAST_GAP >= top[:-1])
        if gaps.any():
            codes = int((sizes[:, j] >= top[1:][gaps][0]).sum())
            sentence = (
                f"Column {names[j]!r} has values of up to {top[-1]:.3g} in {codes:,} of "
                f"{len(X):,} {whose} rows, more than a million times as large as all others: a "
                "code for missing?"
            )
            advice = "If it is, mark these cells as missing, or leave the rows out."
            found.append(Finding("codes", "note", sentence, advice))
    return found


def column_findings(reference: FloatArray, new: FloatArray, names: Sequence[str]) -> list[Finding]:
    """Look at every column of both files.

    Parameters
    ----------
    reference, new : float arrays of shape (n, d), (m, d)
        Samples; missing numbers are NaN.
    names : sequence of str
        Of the columns.

    Returns
    -------
    list of Finding
        At most one per column and kind, in the order of the columns.

    Examples
    --------
    >>> import numpy as np
    >>> ids, later = np.arange(100.0)[:, None], np.arange(100.0, 140.0)[:, None]
    >>> print(*column_findings(ids, later, ["row"]))
    Column 'row' has larger values in every new row than in any reference row: an id or a time?
    Leave it out with `drop`, or carry it as `id_columns`.
    """
    normal = normal_rows_at_least(len(new))
    found: list[Finding] = []
    for j in np.flatnonzero(_worth_a_look(reference, new)).tolist():
        found += missing_findings(names[j], reference[:, j], new[:, j], normal, len(names))
        found += _numbers(names[j], reference[:, j], new[:, j], normal, len(names))
    found += code_findings(reference, names, "reference") + code_findings(new, names, "new")
    if len(found) <= MOST_FINDINGS:
        return found
    found.sort(key=lambda finding: finding.level != "broken")
    more = Finding("columns", "note", f"{len(found) - MOST_FINDINGS:,} more columns are unlike.")
    return [*found[:MOST_FINDINGS], more]


def _worth_a_look(reference: FloatArray, new: FloatArray) -> BoolArray:
    """Columns that any of the checks could speak of, all at once: few of very many."""
    missing = np.isnan(new).any(axis=0)
    (low, high), (least, most) = (
        (
            np.where(np.isnan(X), np.inf, X).min(axis=0),
            np.where(np.isnan(X), -np.inf, X).max(axis=0),
        )
        for X in (reference, new)
    )
    apart = (high < least) | (most < low)
    constant = (low == high) != (least == most)
    whole = (np.isnan(new) | (new == np.floor(new))).all(axis=0)
    return np.asarray(missing | apart | constant | whole)


MISSING_ADVICE = "Find out why values are missing before you trust the list."
ADVICE = "Leave it out with `drop`, or carry it as `id_columns`."


def level_of(p: float) -> str | None:
    """How bad a p-value over all columns is; None if it is nothing."""
    return "broken" if p <= BROKEN else "doubtful" if p <= DOUBTFUL else None


def _log_choose(n: float, k: float) -> float:
    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def _numbers(
    name: str, ours: FloatArray, theirs: FloatArray, normal: int, columns: int
) -> list[Finding]:
    known, seen = ours[~np.isnan(ours)], theirs[~np.isnan(theirs)]
    if not len(known) or not len(seen):
        return []
    if min(known.max(), seen.max()) < max(known.min(), seen.min()):  # ranges do not overlap
        # All m0 normal rows on one side of all n: one order of the files among C(n + m0, n).
        trials = max(0, len(seen) - (len(theirs) - normal))
        p = min(1.0, 2 * columns * float(np.exp(-_log_choose(len(known) + trials, trials))))
        level = level_of(p)
        if level is not None:
            return [_apart(name, known, seen, level)]
    # Neither file repeats a number, so each of these bounds holds.
    alone = no_repeats(known), no_repeats(seen)
    p = 2 * columns * min(*alone, no_repeats(np.concatenate([known, seen])))
    found = []
    if p <= DOUBTFUL and max(alone) < 1.0:
        sentence = (
            f"Column {name!r} holds whole numbers between {known.min():g} and {known.max():g}, and "
            "none twice: an id?"
        )
        found.append(Finding("identifier", "doubtful", sentence, ADVICE))
    elif digits := _one_length(np.concatenate([known, seen])):
        sentence = f"Column {name!r} holds whole numbers of {digits} digits, and none twice: an id?"
        found.append(Finding("identifier", "note", sentence, ADVICE))
    return found + _constant(name, known, seen, len(theirs), normal, columns)


def _apart(name: str, known: FloatArray, seen: FloatArray, level: str) -> Finding:
    if known.min() == known.max() and seen.min() == seen.max():
        sentence = (
            f"Column {name!r} is {known[0]:g} in every reference row and {seen[0]:g} in every new "
            "row: do they come from the same process?"
        )
        return Finding(
            "constant", level, sentence, "If it is not needed, leave it out with `drop`."
        )
    how = "larger" if seen.min() > known.max() else "smaller"
    sentence = f"Column {name!r} has {how} values in every new row than in any reference row: "
    if (known == np.floor(known)).all() and (seen == np.floor(seen)).all():
        return Finding("identifier", level, f"{sentence}an id or a time?", ADVICE)
    return Finding("range", level, f"{sentence}another unit, another process or a time?", ADVICE)


def no_repeats(values: FloatArray) -> float:
    """Bound the chance that N independent whole numbers within their range never repeat.

    Of all laws on L values the uniform one repeats least often: at most the product of 1 - i/L.
    The range is that of the values themselves and one more on each side, as it is not known: up
    to that the bound is exact.
    """
    whole = len(values) > 0 and bool(np.all(values == np.floor(values)))
    if not whole or np.abs(values).max() > 2**53:
        return 1.0
    size = float(values.max() - values.min() + 3)
    n = len(values)
    if n > size or len(np.unique(values)) < n:
        return 1.0
    return float(np.exp(gammaln(size + 1) - gammaln(size - n + 1) - n * np.log(size)))


def _one_length(values: FloatArray) -> int:
    """How many digits long numbers have, if all have as many and none is there twice; 0 if not.

    Numbers drawn from so many seldom repeat by chance, so it is a note. Counts and prices differ in
    their length.
    """
    low, high = values.min(), values.max()
    if low < 10.0 ** (FEWEST_DIGITS - 1) or high > 2**53 or not np.all(values == np.floor(values)):
        return 0
    digits = len(str(int(low)))
    return digits if len(str(int(high))) == digits and len(np.unique(values)) == len(values) else 0


def _constant(
    name: str, known: FloatArray, seen: FloatArray, rows: int, normal: int, columns: int
) -> list[Finding]:
    """Constant in one file, not in the other."""
    flat_known, flat_seen = known.min() == known.max(), seen.min() == seen.max()
    if flat_known == flat_seen:
        return []
    n, trials = len(known), max(0, normal - (rows - len(seen)))
    if not trials:
        return []
    # All rows of one file fall into one class of equal values, of so many in both files together:
    # a share of all ways to deal the rows out, times the number of classes that are large enough.
    if flat_known:
        here = int((seen == known[0]).sum())
        ways = _log_choose(n + min(here, trials), n) - _log_choose(n + trials, n)
        p = columns * (1 + trials / n) * float(np.exp(ways))
        said = (
            f"Column {name!r} is {known[0]:g} in every reference row, and something else in "
            f"{len(seen) - here:,} of {len(seen):,} new rows"
        )
    else:
        other = int((known != seen[0]).sum())
        ways = _log_choose(n, other) - _log_choose(n + trials, other)
        p = columns * (1 + n / trials) * float(np.exp(ways))
        said = (
            f"Column {name!r} is {seen[0]:g} in every new row, and something else in "
            f"{other:,} of {n:,} reference rows"
        )
    level = level_of(p)
    return [] if level is None else [Finding("constant", level, f"{said}.", ADVICE)]


def lost(a: int, n: int, b: int, normal: int) -> float:
    """P(so few of the normal new rows have a property) by Fisher's conditional test.

    a of n reference rows have it and b new rows; of these at most all are normal. Given a + b,
    the number among m0 normal rows is hypergeometric.

    Examples
    --------
    >>> round(lost(1, 1, 0, 2), 3)  # the reference row has it, two normal rows do not
    0.333
    """
    return 1.0 if b >= normal else at_most_marked(b, n + normal, a + b, normal)


def missing_findings(
    name: str, ours: FloatArray, theirs: FloatArray, normal: int, columns: int
) -> list[Finding]:
    """Say whether values are missing more often than in the reference; a note if it is few rows.

    Parameters
    ----------
    name : str
        Of the column.
    ours, theirs : float arrays of shape (n,), (m,)
        Of samples; NaN where a value is missing.
    normal : int
        How many of the m rows are normal at least.
    columns : int
        How many columns are looked at.

    Returns
    -------
    list of Finding
    """
    absent: tuple[BoolArray, BoolArray] = (np.isnan(theirs), np.isnan(ours))
    here, there = (int(some.sum()) for some in absent)
    if not here or here / len(theirs) <= there / len(ours):
        return []
    p = columns * lost(len(ours) - there, len(ours), len(theirs) - here, normal)
    said = (
        f"Column {name!r} is missing in {here:,} of {len(theirs):,} new rows, and in {there:,} of "
        f"{len(ours):,} reference rows."
    )
    level = level_of(p)
    if level is None:
        return [] if there else [Finding("missing", "note", said, MISSING_ADVICE)]
    return [Finding("missing", level, said, MISSING_ADVICE)]


# --- columns of labels ---

MOST_NAMED = 3
UNSEEN_ADVICE = (
    "If they are only written differently, correct them; if they are normal, take a reference that "
    "has them: until then rows are unusual for their label alone."
)
# Labels that are all new, and each in several rows, may name units; of so many at least.
LEAST_UNITS = 20
UNITS_ADVICE = (
    "If each stands for a run, a day or a customer, judge these as a whole: "
    "`reconform detect --unit {0}`, or `units={1}` in Python."
)


@dataclass(frozen=True)
class Category:
    """What is known of a column of labels beside the codes of its rows.

    Attributes
    ----------
    labels : tuple of str
        Those of the reference; empty if only codes are known.
    unseen : mapping
        Labels that the reference does not have, some of them if they are very many, and in how
        many rows of the whole batch each is; empty if only codes are known.
    rows : int
        Rows of the whole batch with such a label.
    """

    labels: tuple[str, ...] = ()
    unseen: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0


def label_findings(
    name: str,
    category: Category,
    reference: FloatArray,
    new: FloatArray,
    *,
    normal: int,
    of: int,
    columns: int = 1,
) -> list[Finding]:
    """Look at a column of labels in both files.

    Parameters
    ----------
    name : str
    category : Category
    reference, new : float arrays of shape (n,), (m,)
        Codes of samples, in an order that has nothing to do with what the rows hold; NaN where no
        label is given.
    normal : int
        How many of the new rows in the sample are normal at least; 0 if there are too few rows to
        test anything.
    of : int
        Rows of the whole batch.
    columns : int
        How many columns of labels are looked at: the rates of false alarms are for all of them.

    Returns
    -------
    list of Finding

    Examples
    --------
    >>> import numpy as np
    >>> known, seen = np.arange(100.0) % 2, np.where(np.arange(40) < 30, 7.0, 1.0)
    >>> colour = Category(("blue", "red"), {"mauve": 30}, rows=30)
    >>> print(*label_findings("colour", colour, known, seen, normal=32, of=40))
    Column 'colour' has labels that the reference does not have, in 30 of 40 new rows: 'mauve'
    (30). If they are only written differently, correct them; if they are normal, take a reference
    that has them: until then rows are unusual for their label alone.
    """
    found = missing_findings(name, reference, new, normal, columns) if normal else []
    absent = int(np.isnan(new).sum())
    known, seen = reference[~np.isnan(reference)], new[~np.isnan(new)]
    # Which rows have a label at all is given; those that have none may be normal.
    trials = max(0, normal - absent)
    unseen = _unseen(name, category, known, seen, trials, of, columns)
    if unseen is not None:
        return [*found, unseen]
    gone = _gone(name, category, known, seen, trials, columns)
    return found if gone is None else [*found, gone]


def _unseen(
    name: str,
    category: Category,
    known: FloatArray,
    seen: FloatArray,
    trials: int,
    of: int,
    columns: int,
) -> Finding | None:
    of_reference = [label_code(label) for label in category.labels] or known
    rows = category.rows or int((~np.isin(seen, of_reference)).sum())
    if not rows:
        return None
    # Labels that only new rows have were chosen by looking at them. So a label counts as known if
    # half of the reference has it: a property that the other half and normal new rows share.
    half = len(known) // 2
    listed, others = known[:half], known[half:]
    a, b = int(np.isin(others, listed).sum()), int(np.isin(seen, listed).sum())
    level = level_of(columns * lost(a, len(others), b, trials)) if trials else None
    named = sorted(category.unseen.items(), key=lambda item: (-item[1], item[0]))
    said = ", ".join(f"{label[:40]!r} ({count:,})" for label, count in named[:MOST_NAMED])
    more = " and others" if len(named) > MOST_NAMED else ""
    sentence = (
        f"Column {name!r} has labels that the reference does not have, in {rows:,} of {of:,} new "
        f"rows{': ' if said else ''}{said}{more}."
    )
    advice = UNSEEN_ADVICE
    if not b and len(np.unique(known)) >= LEAST_UNITS and len(seen) >= 2 * len(np.unique(seen)):
        advice = UNITS_ADVICE.format(shlex.quote(name), repr(name))
    return Finding("new labels", level or "note", sentence, advice)


def _gone(
    name: str, category: Category, known: FloatArray, seen: FloatArray, trials: int, columns: int
) -> Finding | None:
    """The label of the reference that is missing most among the new rows."""
    if not trials or not len(known):
        return None
    codes, times = np.unique(known, return_counts=True)
    here = (seen[:, None] == codes).sum(axis=0)
    n, m = len(known), len(seen)
    chances = [lost(a, n, b, trials) for a, b in zip(times.tolist(), here.tolist(), strict=True)]
    worst = int(np.argmin(chances))
    level = level_of(columns * len(codes) * chances[worst])
    if level is None:
        return None
    words = {label_code(label): repr(label[:40]) for label in category.labels}
    label = words.get(float(codes[worst]), f"label {codes[worst]:g}")
    sentence = (
        f"Column {name!r} is {label} in {here[worst]:,} of {m:,} new rows, and in "
        f"{times[worst]:,} of {n:,} reference rows."
    )
    advice = "Find out why; take a reference that was taken under the same conditions."
    return Finding("labels", level, sentence, advice)


# --- what is said about a reference before any new row is judged by it ---

# A column that changes mostly does so within the first rows: only the others are read to the end.
LOOK_FIRST = 1000


def warn_of_columns(X: FloatArray, names: Sequence[str], whom: object) -> None:
    """Say which columns of a reference never change, unless none does.

    Such a column has no part in telling reference rows apart, whatever the detector. It is not
    taken out of the rows: a new row that differs there differs from everything that is known, and
    a theorem about D and a new row needs both to be treated alike.

    Parameters
    ----------
    X : float array of shape (n, d)
    names : sequence of str
        Of the columns; may be empty.
    whom : object
        Told once.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_columns(np.array([[1.0, 7.0], [2.0, 7.0]]), ["flow", "site"], None)
    >>> print(caught[0].message)
    the column 'site' never changes in the reference: it tells no normal rows apart, and a new row
    with another value looks unusual. Leave the column out if it should not count.
    """
    first = X[:LOOK_FIRST]
    same = (X[0] == first).all(axis=0) | np.isnan(first).all(axis=0)
    if len(X) > len(first) and same.any():
        at = np.flatnonzero(same)
        same[at] = (X[0, at] == X[:, at]).all(axis=0) | np.isnan(X[:, at]).all(axis=0)
    if not same.any() or same.all():
        return
    which = listed(names[j] if names else str(j) for j in np.flatnonzero(same).tolist())
    said = (
        f"the column {which} never changes in the reference: it tells no normal rows apart, and a "
        "new row with another value looks unusual. Leave the column out if it should not count."
        if same.sum() == 1
        else f"the columns {which} never change in the reference: they tell no normal rows apart, "
        "and a new row with another value looks unusual. Leave the columns out if they are to play "
        "no part."
    )
    warn_once(whom, "columns that never change", said, ReferenceWarning)


def warn_of_scores(scores: FloatArray, name: str, whom: object) -> None:
    """Say it if calibration scores say little: all equal, or beyond what a number can hold.

    Parameters
    ----------
    scores : float array of shape (n,)
        The calibration scores c_i.
    name : str
        Of the detector.
    whom : object
        Told once.
    """
    beyond = int((np.abs(scores) >= LARGEST).sum())
    if beyond:
        said = (
            f"detector {name} gives {beyond:,} of {len(scores):,} calibration rows a score that "
            "is too large for a number: such rows are not told apart, and no new row looks more "
            "unusual than they do. Divide columns of very large numbers by a constant, or use "
            "another detector."
        )
    elif len(scores) > 1 and (scores == scores[0]).all():
        said = (
            f"all {len(scores)} calibration scores are equal ({scores[0]:g}): detector {name} "
            "does not tell the reference rows apart, so only rows that score strictly lower can "
            "get a small p-value, and very likely nothing will be found. Check the reference for "
            "constant or duplicated rows, or use another detector."
        )
    else:
        return
    warn_once(whom, "scores", said, ReferenceWarning)
