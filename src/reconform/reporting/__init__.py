"""What was found, to look at: an HTML page, and the same charts for notebooks.

Both functions load what they need when they are called, so that `import reconform` stays light.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from ..discoveries import Discoveries

__all__ = ["chart", "report"]


def report(
    found: Discoveries,
    path: str | os.PathLike[str],
    *,
    ids: Any = None,
    title: str | None = None,
    overwrite: bool = False,
    explained: int = 30,
) -> Path:
    """Write a page that shows what was found, for a person deciding what to inspect first.

    The page is one file and needs no network. It has the result in words, a slider for the FDR
    level, the charts of `chart`, the flagged rows, and how all was computed.

    Parameters
    ----------
    found : Discoveries
    path : str or path
        Where to write; the folder must exist.
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
    pathlib.Path
        What was written.

    See Also
    --------
    reconform.chart : The same charts in a notebook.

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
    from .page import render, write_page

    page = partial(render, found, ids=ids, title=title, explained=explained)
    return write_page(Path(path), page, overwrite=overwrite)


def chart(found: Discoveries) -> Any:
    """Draw p-values, the line of the procedure and scores, with a slider for the FDR level.

    Parameters
    ----------
    found : Discoveries

    Returns
    -------
    altair.VConcatChart
        Shown inline in notebooks; ``chart(found).save("charts.html")`` writes it to a file.

    See Also
    --------
    reconform.report : The same charts on a page with the rows and all that explains them.

    Examples
    --------
    >>> from reconform.cli.detect import run_demo
    >>> from reconform.reporting import chart
    >>> type(chart(run_demo()[0])).__name__
    'VConcatChart'
    """
    from .charts import draw

    return draw(found)
