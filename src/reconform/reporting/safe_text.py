"""Text that is safe and short enough for a page, whatever it came from."""

from __future__ import annotations

import json
import math
from typing import Any


def script_json(value: Any) -> str:
    r"""Write JSON that can stand inside a ``<script>`` element: nothing in it ends the element.

    Examples
    --------
    >>> print(script_json({"id": "</script>"}))
    {"id":"\u003c/script\u003e"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def shorten(text: str, longest: int) -> str:
    """Cut a text that is too long for its place; replace what is not valid Unicode.

    Examples
    --------
    >>> shorten("a long name", 6)
    'a lon…'
    """
    clean = text.encode("utf-8", "replace").decode()
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def number(value: float) -> float | str:
    """Round for showing; JSON has no infinity, so that is a text.

    Examples
    --------
    >>> number(0.123456), number(float("-inf"))
    (0.1235, '-inf')
    """
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)


def percent(share: float) -> str:
    """Write a level as people do.

    Examples
    --------
    >>> percent(0.07), percent(0.005)
    ('7%', '0.5%')
    """
    return f"{share * 100:g}%"
