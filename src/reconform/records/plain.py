"""Parameters: plain values of Python and NumPy as JSON, exactly as they were."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import ReconformError
from . import require
from .specs import Json, Reader, Writer

# NumPy's own sources of random bits, by name: all that a generator may be restored from.
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
MOST_POOL = 1 << 10  # NumPy's default is 4
MOST_WORDS = 1 << 12

_NUMBER = re.compile(r"[<>|=]?[biuf]\d{1,2}")


class Plain:
    """Any value made of numbers, words, arrays, seeds, lists, tuples and dicts.

    What JSON has is written as it is, everything else as an object with the single key that says
    what it is.
    """

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write a value; refuse what is not plain."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            return self._items(value, at, out)
        if type(value) is tuple:
            return {"tuple": self._items(value, at, out)}
        if type(value) is dict:
            return {"dict": [self._item(key, value[key], at, out) for key in value]}
        if isinstance(value, Fraction):
            return {"fraction": [value.numerator, value.denominator]}
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            item = self.write(value.item(), at, out)
            return {"scalar": [value.dtype.str, item]}
        if isinstance(value, np.ndarray):
            return {"array": out.array(value, at)}
        if isinstance(value, np.random.SeedSequence):
            seed = [value.entropy, value.spawn_key, value.pool_size]
            return {"seed": self._items(seed, at, out)}
        if isinstance(value, np.random.Generator):
            return {"generator": self.write(value.bit_generator.state, at, out)}
        if isinstance(value, np.random.RandomState):
            return {"random_state": self.write(value.get_state(legacy=False), at, out)}
        raise ReconformError(
            f"{at} is {value!r}, and only plain values can be saved: numbers, words, arrays, "
            "lists, tuples, dicts, seeds. A function has no place in a file that is safe to load; "
            "use a named choice instead."
        )

    def _items(self, values: Any, at: str, out: Writer) -> list[Json]:
        return [self.write(value, f"{at}/{k}", out) for k, value in enumerate(values)]

    def _item(self, key: Any, value: Any, at: str, out: Writer) -> list[Json]:
        require(isinstance(key, str), f"{at} has the key {key!r}, and only words can be keys")
        return [key, self.write(value, f"{at}/{re.sub('[^A-Za-z0-9_]', '_', key)}", out)]

    def read(self, json: Json, source: Reader) -> Any:
        """Read a value."""
        if isinstance(json, list):
            return [self.read(item, source) for item in json]
        if not isinstance(json, dict):
            return json
        require(len(json) == 1, "a value says more than one thing of what it is")
        ((what, content),) = json.items()
        match what:
            case "float":
                require(content in ("inf", "-inf", "nan"), f"{content!r} is no number")
                return float(content)
            case "tuple":
                require(isinstance(content, list), "a tuple is no list")
                return tuple(self.read(content, source))
            case "dict":
                pairs = all(
                    isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
                    for pair in content
                )
                require(isinstance(content, list) and pairs, "a dict is no list of pairs")
                return {key: self.read(value, source) for key, value in content}
            case "fraction":
                return _fraction(content)
            case "scalar":
                return _scalar(content, self.read(content[1], source))
            case "array":
                return source.array(content)
            case "seed":
                return _seed(*self.read(content, source))
            case "generator":
                return np.random.Generator(_bits(self.read(content, source)))
            case "random_state":
                return _random_state(self.read(content, source))
        raise ReconformError(f"nothing is called {what!r}")


def _fraction(content: Json) -> Fraction:
    """Read two integers, whose size `parse_json` bounds; Fraction would take "1e50000000" too."""
    two = isinstance(content, list) and len(content) == 2 and all(type(k) is int for k in content)
    require(two and content[1] > 0, "a fraction is not two integers")
    return Fraction(*content)


def _scalar(content: Json, value: Any) -> Any:
    name, _ = content
    require(isinstance(name, str) and _NUMBER.fullmatch(name), f"{name!r} is no type of numbers")
    require(type(value) in (bool, int, float), "a scalar is not one number")
    return np.dtype(name).type(value)


def _seed(entropy: Any, spawn_key: Any, pool_size: Any) -> np.random.SeedSequence:
    require(type(pool_size) is int and 4 <= pool_size <= MOST_POOL, "the pool of a seed is not one")
    for words in (entropy, spawn_key):
        few = not isinstance(words, list | tuple) or len(words) <= MOST_WORDS
        require(few and not isinstance(words, str), "a seed is too long")
    return np.random.SeedSequence(entropy, spawn_key=spawn_key, pool_size=pool_size)


def check_bits(state: Any) -> None:
    """Refuse a state of a generator that points out of its own buffer; NumPy would follow it."""
    inner = state.get("state")
    places = {"MT19937": (inner, "pos", 624), "Philox": (state, "buffer_pos", 4)}
    if state["bit_generator"] in places:
        where, name, last = places[state["bit_generator"]]
        place = where.get(name)
        inside = isinstance(place, int | np.integer) and 0 <= place <= last
        require(inside, f"{name} of a generator is {place!r}")


def _bits(state: dict[str, Any]) -> Any:
    name = state["bit_generator"]
    require(name in BIT_GENERATORS, f"{name!r} is no bit generator of NumPy")
    check_bits(state)
    bits = getattr(np.random, name)(0)
    bits.state = state
    return bits


def _random_state(state: dict[str, Any]) -> np.random.RandomState:
    require(state["bit_generator"] in BIT_GENERATORS, "a bit generator is unknown")
    check_bits(state)
    restored = np.random.RandomState(getattr(np.random, state["bit_generator"])(0))
    restored.set_state(state)
    return restored
