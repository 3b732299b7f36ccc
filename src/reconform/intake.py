"""How rows become what a detector sees: numbers, frames as they are, or codes of what they hold.

- `Numbers`: an array of float64, checked by scikit-learn, for detectors that know nothing else.
- `Frames`: a pipeline, or any detector of others that is given a frame with text, gets the frame.
- `Coded`: with `Prepare`, numbers and codes of categories, as in files.

Frames are matched to the reference by the names of their columns, in any order, always.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from .arrays import FloatArray
from .assumption.columns import Category
from .detectors import ForeignDetector, NativeDetector, resolve_detector
from .detectors.prepare import Prepare
from .errors import ReconformError, blame_input, listed
from .frames import (
    Column,
    FrameRows,
    by_name,
    columns_of,
    frame_as_it_is,
    frame_of_records,
    make_frame,
    numbers_of,
    opened,
    package_of,
    read_column,
    refuse_times,
    text_sentence,
    time_columns,
    unmasked,
    validated_rows,
)
from .tables import Feature
from .tables.uses import rows_of_frame

# Text with more labels than this is no category, and its labels are not kept.
MOST_LABELS = 1_000


class Intake(ABC):
    """How the rows of one fitted detector are read."""

    @abstractmethod
    def read(self, estimator: Any, X: Any, *, reset: bool, least: int, finite: bool | str) -> Any:
        """Check rows, and return them as the detector sees them.

        Parameters
        ----------
        estimator : ConformalDetector
            With `reset`, it takes note of the columns.
        X : array-like or frame
        reset : bool
            These are the rows of the reference.
        least : int
            Rows that there must be.
        finite : bool or "allow-nan"
            What numbers may pass.

        Returns
        -------
        float array of shape (m, d), or FrameRows
        """

    def features(self, names: Sequence[str]) -> tuple[Feature, ...]:
        """Say how files are read for the detector, whose columns have these names."""
        return tuple(Feature(name) for name in names)

    def of_file(self, X: FloatArray, names: Sequence[str]) -> Any:
        """Return numbers that a reader of files has made as the detector sees them."""
        return X

    def of_records(self, records: Any, names: Sequence[str]) -> Any:
        """Make a frame of rows that are dicts."""
        return frame_of_records(records, names)

    def categories(self, estimator: Any = None, X: Any = None) -> dict[int, Category]:
        """Say which columns hold labels, by position; and which labels of X are new."""
        return {}

    @contextmanager
    def explained(self, detector: Any, X: Any) -> Iterator[None]:
        """Say in words of ours why a detector could not be fitted on these rows."""
        yield


class Numbers(Intake):
    """Rows as an array of float64."""

    def read(self, estimator: Any, X: Any, *, reset: bool, least: int, finite: bool | str) -> Any:
        """Convert rows as scikit-learn does."""
        return validated_rows(
            estimator, X, reset=reset, ensure_all_finite=finite, ensure_min_samples=least
        )


@dataclass(frozen=True)
class _ByColumn(Intake):
    """Intakes that know what the columns of the reference are.

    Attributes
    ----------
    columns : tuple of Feature
        Those of the reference; of those that hold text the labels, where they are few.
    """

    columns: tuple[Feature, ...]

    def categories(self, estimator: Any = None, X: Any = None) -> dict[int, Category]:
        """Say which columns hold labels, and count those that the reference does not have."""
        found = {}
        cells = {str(name): column for name, column in columns_of(frame_as_it_is(X)).items()}
        for j, feature in enumerate(self.columns):
            if feature.labels:
                found[j] = Category(feature.labels)
                if cells:
                    unseen = _unseen(read_column(cells[feature.name]), feature.labels)
                    found[j] = Category(feature.labels, unseen, unseen.total())
        return found

    def _named(self, estimator: Any, X: Any, *, reset: bool) -> Any:
        """Return a frame with the columns of the reference; None for an array."""
        X = frame_as_it_is(unmasked(X))
        if package_of(X) is None:
            return None
        X = by_name(X, [feature.name for feature in self.columns], whose=estimator)
        with blame_input():
            validate_data(estimator, X, reset=reset, skip_check_array=True)
        return X


def _unseen(column: Column, known: Sequence[str]) -> Counter[str]:
    """Count the labels of a column that are not known."""
    words, rows = column.words, column.rows_by_label
    return Counter({word: rows[k] for k, word in enumerate(words) if word not in set(known)})


@dataclass(frozen=True)
class Frames(_ByColumn):
    """Frames as they are, for detectors that read them.

    Attributes
    ----------
    package : str
        The library of the reference, in which numbers of a file are put.
    """

    package: str

    @classmethod
    def of(cls, package: str, X: Any) -> Frames:
        """Look at a reference."""
        columns = []
        for name, cells in columns_of(X).items():
            column = read_column(cells)
            labels = None if column.values is not None else tuple(sorted(set(column.words)))
            few = labels is None or len(labels) <= MOST_LABELS
            columns.append(Feature(str(name), labels if few else ()))
        return cls(tuple(columns), package)

    @property
    def text(self) -> list[str]:
        """Columns of the reference that hold no numbers."""
        return [feature.name for feature in self.columns if feature.is_category]

    def read(self, estimator: Any, X: Any, *, reset: bool, least: int, finite: bool | str) -> Any:
        """Look at the columns only: the rows are the detector's to check."""
        frame = self._named(estimator, X, reset=reset)
        if frame is None:
            if self.text:
                raise ReconformError(
                    "the reference was a frame, with columns that hold no numbers "
                    f"({listed(self.text)}); give a frame here, too, not {type(X).__name__}."
                )
            numbers = validated_rows(
                estimator, X, reset=reset, ensure_all_finite=finite, ensure_min_samples=least
            )
            return self.of_file(numbers, [feature.name for feature in self.columns])
        rows = FrameRows(frame, numbers_of(frame, [f.labels for f in self.columns]))
        if len(rows) < least:
            raise ReconformError(
                f"X has {len(rows)} row{'s' * (len(rows) != 1)}; at least {least} are needed."
            )
        return rows

    def features(self, names: Sequence[str]) -> tuple[Feature, ...]:
        """Return columns of numbers; refuse text, which only the detector knows how to read."""
        if self.text:
            raise ReconformError(
                f"the detector was fitted on a frame with text ({listed(self.text)}), which only "
                "its pipeline can read; judge frames with it, or fit with Prepare(detector), which "
                "reads files, too."
            )
        return super().features(names)

    def of_file(self, X: FloatArray, names: Sequence[str]) -> Any:
        """Put the numbers in a frame of the same library."""
        columns = {str(name): X[:, j] for j, name in enumerate(names)}
        return FrameRows(make_frame(self.package, columns), X)

    def of_records(self, records: Any, names: Sequence[str]) -> Any:
        """Make a frame of the same library."""
        return frame_of_records(records, names, self.package)

    @contextmanager
    def explained(self, detector: Any, X: Any) -> Iterator[None]:
        """Say which columns are text or times, or that it is Arrow, if that may be the trouble.

        What is no pipeline was given a frame for its text only, and may know nothing of frames.
        """
        try:
            yield
        except Exception as error:
            times = time_columns(X.frame)
            if times and isinstance(error, TypeError | ValueError):
                refuse_times(listed(times), error)
            if self.package == "pyarrow" and "registered adapter" in str(error):
                raise ReconformError(
                    "a step of the pipeline cannot read Arrow tables, such as 'passthrough' in a "
                    "ColumnTransformer; give X.to_pandas(), or polars.from_arrow(X)."
                ) from error
            strange = not detector.takes_frames or "could not convert string" in str(error)
            if self.text and strange:
                raise ReconformError(f"{text_sentence(self.text)} ({error})") from error
            raise


@dataclass(frozen=True)
class Coded(_ByColumn):
    """Numbers, and the codes of categories; NaN where a value is missing.

    Attributes
    ----------
    aside : sequence of str, optional
        Columns of the reference that nothing is made of; None where these are not known.
    """

    aside: Sequence[str] | None = None

    def read(self, estimator: Any, X: Any, *, reset: bool, least: int, finite: bool | str) -> Any:
        """Read columns of numbers as they are, labels as codes, and parts of dates."""
        X = frame_as_it_is(unmasked(X))
        if package_of(X) is None:
            numbers = validated_rows(estimator, X, reset=reset, ensure_all_finite="allow-nan")
            rows = np.column_stack(
                [
                    column if feature.labels is None else Column(column).codes()
                    for feature, column in zip(self.columns, numbers.T, strict=True)
                ]
            )
        else:
            rows = rows_of_frame(self._chosen(estimator, X), self.columns)
            made = dict(zip((one.name for one in self.columns), rows.T, strict=True))
            frame = make_frame("pyarrow", made)
            validate_data(estimator, frame, reset=reset, skip_check_array=True)
        with blame_input():
            checked: FloatArray = check_array(
                rows,
                dtype=np.float64,
                order="C",
                ensure_all_finite="allow-nan",
                ensure_min_samples=least,
                input_name="X",
            )
        return checked

    def _chosen(self, estimator: Any, X: Any) -> Any:
        """The columns that features are made of; of others those that are new are named, once."""
        names = list(dict.fromkeys(feature.column for feature in self.columns))
        frame = opened(X)
        assert frame is not None
        aside = frame.columns if self.aside is None else self.aside
        some = [name for name in frame.columns if str(name) in names or str(name) not in aside]
        if set(names) <= set(map(str, some)):
            X = frame.select(some).to_native()
        return by_name(X, names, whose=estimator)

    def of_records(self, records: Any, names: Sequence[str]) -> Any:
        """Make a frame of rows that are dicts, with the columns that features are made of."""
        return frame_of_records(records, list(dict.fromkeys(f.column for f in self.columns)))

    def features(self, names: Sequence[str]) -> tuple[Feature, ...]:
        """Return the columns of the reference, with their labels."""
        return self.columns


def preparing(
    detector: Any, X: Any = None, intake: Intake | None = None, larger_is: str | None = None
) -> Prepare | None:
    """How a detector is prepared: as it says, or one of ours by itself for text, dates and gaps.

    It is told from a reference, or from how one was taken in.
    """
    if isinstance(detector, Prepare):
        return detector
    if isinstance(intake, Coded):
        return Prepare(detector)
    resolved = None if package_of(X) is None else resolve_detector(detector, larger_is)
    if not isinstance(resolved, NativeDetector):
        return None
    numbers = [read_column(cells).values for cells in columns_of(X).values()]
    gaps = any(values is not None and np.isnan(values).any() for values in numbers)
    odd = time_columns(X) or any(values is None for values in numbers)
    return Prepare(detector) if odd or (gaps and not resolved.accepts_nan) else None


def taken_in(
    detector: Any, X: Any, larger_is: str | None = None, *, refit: bool = True
) -> tuple[ForeignDetector | NativeDetector, Intake]:
    """Turn any detector into one that fits plans, and say how it is given rows like these.

    Parameters
    ----------
    detector : str, estimator, callable or Prepare
    X : array-like or frame
        The reference.
    larger_is : {"anomalous", "normal"}, optional
    refit : bool
        False if the detector is to be used as it is fitted already.

    Returns
    -------
    detector : ForeignDetector or NativeDetector
    intake : Intake
    """
    X = frame_as_it_is(X)
    if refit:
        detector = preparing(detector, X, None, larger_is) or detector
    if isinstance(detector, Prepare):
        if not refit:
            raise ReconformError(
                "Prepare learns from the rows that its detector is fitted on, and "
                "`method='prefit'` fits nothing; use another method."
            )
        columns = detector.features_of(X)
        used = {feature.column for feature in columns}
        aside = tuple(name for name in map(str, columns_of(X)) if name not in used)
        return resolve_detector(detector.for_features(columns), larger_is), Coded(columns, aside)
    resolved = resolve_detector(detector, larger_is, refit=refit)
    package = package_of(X)
    if package is None or not isinstance(resolved, ForeignDetector):
        return resolved, Numbers()
    times = time_columns(X)
    if times and not resolved.chooses_columns:
        refuse_times(listed(times))
    known = resolved.known_names
    frames = Frames.of(package, X if known is None or refit else by_name(X, known, whose=None))
    return resolved, frames if frames.text or resolved.takes_frames else Numbers()
