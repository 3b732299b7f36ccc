"""The online procedures of the `online-fdr` library, and what is proven about them here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..errors import unknown_choice
from ..extras import extra
from ..rule import Rule
from ..statistics.certificates import Guarantee
from ..statistics.thresholds import BANDS

# How far a look ahead goes, in rows.
MOST_ROWS = 20_000

GOLDEN = 0.6180339887498949

# The γ of SAFFRON and ADDIS in online-fdr 1.0 add up to 1 + 6e-11, and must not exceed 1.
_WITHIN = 1 - 1e-10


@dataclass(frozen=True)
class OnlineProcedure:
    """A row of the table of online procedures.

    Attributes
    ----------
    make : callable
        A test of `online-fdr`, from its module and the level, with its usual parameters and half
        of the level as first wealth.
    on_split : bool
        Whether it is proven on the p-values of one split, which are positively dependent.
    on_conditional : bool
        Whether it is proven on independent p-values that are valid, as conditional ones are.
    """

    make: Callable[[Any, float], Any]
    on_split: bool = False
    on_conditional: bool = True


def _saffron(library: Any, fdr: float) -> Any:
    level = fdr * _WITHIN
    return library.Saffron(alpha=level, wealth=level / 2, lambda_=0.5)


def _addis(library: Any, fdr: float) -> Any:
    level = fdr * _WITHIN
    return library.Addis(alpha=level, wealth=level / 2, lambda_=0.25, tau=0.5)


ONLINE: dict[str, OnlineProcedure] = {
    "lond": OnlineProcedure(lambda library, fdr: library.Lond(alpha=fdr), on_split=True),
    "lord": OnlineProcedure(
        lambda library, fdr: library.LordPlusPlus(alpha=fdr, wealth=fdr / 2),
    ),
    "saffron": OnlineProcedure(_saffron),
    # Its proof asks that p-values be uniformly conservative.
    "addis": OnlineProcedure(_addis, on_conditional=False),
}
# "batch-bh" decides every batch by itself, by a `Rule`.
PROCEDURES = (*ONLINE, "batch-bh")


def make_test(procedure: str, fdr: float) -> Any:
    """Make a test of `online-fdr` with its usual parameters; half of the level as first wealth.

    Examples
    --------
    >>> test = make_test("lond", 0.1)
    >>> test.test_one(0.5), round(test.last_test_level, 5)
    (False, 0.00535)
    """
    if procedure not in ONLINE:
        raise unknown_choice("procedure", procedure, PROCEDURES)
    return ONLINE[procedure].make(_library(procedure), fdr)


def restore_test(procedure: str, snapshot: dict[str, Any]) -> Any:
    """Make a test of `online-fdr` as it was when its `snapshot` was taken."""
    return type(make_test(procedure, 0.1)).from_snapshot(snapshot)


def _library(procedure: str) -> Any:
    without = "procedure='batch-bh' does without."
    return extra("online_fdr", "stream", f"procedure={procedure!r}", instead=without).p_values


def next_level(test: Any) -> float:
    """Tell at which level the next row will be tested, whatever its p-value; nothing is spent.

    Examples
    --------
    >>> test = make_test("saffron", 0.1)
    >>> ahead = next_level(test)
    >>> test.test_one(0.03), test.last_test_level == ahead
    (False, True)
    """
    # The library has no such question. A p-value of 1 is never rejected, so asking a copy that
    # cannot remember changes nothing; a deep copy would cost the whole history each time.
    twin = copy.copy(test)
    for name, value in vars(twin).items():
        if isinstance(value, list):
            setattr(twin, name, _Unchanging(value))
    twin.test_one(1.0)
    return float(twin.last_test_level)


def rows_until_blind(test: Any, smallest_p: Fraction, most: int | None = None) -> int | None:
    """Count the rows without a discovery after which no p-value is small enough any more.

    Parameters
    ----------
    test : object
        A test of `online-fdr`; it is not changed.
    smallest_p : Fraction
        The smallest p-value that there is.
    most : int, optional
        Rows to look ahead; `MOST_ROWS` by default.

    Returns
    -------
    int or None
        None if there are more than `most`. The levels of LOND and LORD do not depend on the
        p-values of rows that are not discovered; those of SAFFRON and ADDIS do, and p-values that
        are spread evenly over (0, 1) stand for normal rows.

    Examples
    --------
    >>> rows_until_blind(make_test("lond", 0.1), Fraction(1, 10_001))
    41
    """
    twin = copy.deepcopy(test)
    for rows in range(MOST_ROWS if most is None else most):
        level = next_level(twin)
        if level < smallest_p:
            return rows
        # Multiples of the golden section fill (0, 1) evenly; one below the level would be found.
        twin.test_one(max(0.5 + rows * GOLDEN - int(0.5 + rows * GOLDEN), min(1.0, 2 * level)))
    return None


class _Unchanging:
    """A list that can be read; what is appended to it is dropped."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def append(self, item: Any) -> None:
        """Drop it."""


def promise(procedure: str, method: Guarantee, rule: Rule) -> str:
    """Say what holds for the false discovery rate of a stream, in a sentence or two.

    Parameters
    ----------
    procedure : str
    method : Guarantee
        What is known about the p-values.
    rule : Rule
        The level and the p-values.

    Examples
    --------
    >>> from reconform.statistics.certificates import guarantee
    >>> promise("lond", guarantee("split"), Rule(fdr=0.1))
    'FDR at most 0.1 after any number of rows, proven for LOND on split (conformal p-values are
    positively dependent), if new rows are independent.'
    >>> promise("saffron", guarantee("split"), Rule(fdr=0.1))
    "FDR measured, not proven, for SAFFRON on split: p-values of one calibration set depend on each
    other. With `conditional='simes'` it is proven."
    """
    name, conditional = procedure.upper(), rule.conditional
    level = f"{float(rule.level):g}"
    if procedure == "batch-bh":
        said = method.sentence("bh", conditional=conditional)
        return f"{said} It holds for each batch, not for all batches together."
    row = ONLINE[procedure]
    if conditional is not None and not row.on_conditional:
        return (
            f"FDR measured, not proven, for {name}: its proof asks that p-values be uniformly "
            "conservative, and calibration-conditional ones need not be. SAFFRON is proven."
        )
    if conditional is not None and BANDS[conditional].proven:
        return (
            f"FDR at most {level} after any number of rows given the calibration set, proven for "
            f"{name} on {conditional} conditional p-values for a share "
            f"{float(rule.confidence):g} of calibration sets, if new rows are independent."
        )
    if conditional is not None:
        return (
            f"FDR of {name} holds given the calibration set only approximately: the band behind "
            f"{conditional} conditional p-values is a large-sample one."
        )
    one_model = method.name in ("split", "prefit")
    if row.on_split and one_model:
        return (
            f"FDR at most {level} after any number of rows, proven for {name} on {method.name} "
            "(conformal p-values are positively dependent), if new rows are independent."
        )
    way_out = (
        " With `conditional='simes'` it is proven." if one_model and row.on_conditional else ""
    )
    return (
        f"FDR measured, not proven, for {name} on {method.name}: p-values of one calibration set "
        f"depend on each other.{way_out}"
    )
