"""What was found, to look at: one HTML page, as a file or in a notebook."""

from __future__ import annotations

import os
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from ..discoveries import Discoveries

__all__ = ["report"]


class Page(str):
    """A page as a text, which a notebook shows in a frame of its own."""

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self)}" width="100%" height="900"></iframe>'


def report(
    found: Discoveries,
    path: str | os.PathLike[str] | None = None,
    *,
    ids: Any = None,
    title: str | None = None,
    overwrite: bool = False,
    explained: int = 30,
) -> Path | Page:
    """Make a page that shows what was found, for a person deciding what to inspect first.

    The page is one file and needs no network. It has the result in words, a slider for the FDR
    level, charts of p-values and scores, the flagged rows, and how all was computed.

    Parameters
    ----------
    found : Discoveries
    path : str or path, optional
        Where to write; the folder must exist. Without it the page is returned, and a notebook
        shows it.
    ids : sequence of length m, optional
        A label per row; by default the input's index, or the position.
    title : str, optional
    overwrite : bool, default=False
        Replace an existing file.
    explained : int, default=30
        So many of the rows that come first open to an explanation (`found.explain`), which shows
        values of these and of reference rows; the table names the most unusual features of all.
        With 0, no value of any row is on the page.

    Returns
    -------
    pathlib.Path or str
        The file that was written; or the page itself.

    Notes
    -----
    Rows are embedded in the page: whoever gets it can read them. Up to about 30,000 rows are
    carried, the most unusual first, so that the page stays below 5 MB; counts and charts are about
    all rows. The page is written to a temporary file and renamed, so there is never half a page.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from reconform.cli.detect import run_demo
    >>> from reconform.reporting import report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report(run_demo()[0], Path(folder) / "report.html")
    ...     "of 229 rows flagged" in page.read_text()
    True
    """
    from .page import render, write_page  # only now, so that `import reconform` stays light

    page = partial(render, found, ids=ids, title=title, explained=explained)
    return Page(page()) if path is None else write_page(Path(path), page, overwrite=overwrite)
