"""Columns of every type that Arrow has, six rows each, with the values that make trouble."""

import decimal

import pyarrow as pa

ROWS = 6
FAR = [10**12, -(10**12), None] * 2


def bad_text(type=None):
    cells = pa.array([b"caf\xe9", b"caf\xe8", b"b", b"c", None, b"e"], pa.binary())
    made = pa.Array.from_buffers(pa.string(), ROWS, cells.buffers())
    return made if type is None else made.cast(type)


def union(sparse):
    which = pa.array([0, 1] * 3, pa.int8())
    if sparse:
        return pa.UnionArray.from_sparse(which, [pa.array(range(6)), pa.array(list("abcdef"))])
    places = pa.array([0, 0, 1, 1, 2, 2], pa.int32())
    return pa.UnionArray.from_dense(which, places, [pa.array(range(3)), pa.array(list("abc"))])


def runs(values):
    return pa.RunEndEncodedArray.from_arrays(pa.array([2, 6], pa.int32()), values)


def wrapped(type, values, storage):
    return pa.ExtensionArray.from_storage(type, pa.array(values, storage))


CENT = decimal.Decimal("1.25")
ZOO = {
    "string_view": pa.array(["a", "b", None] * 2, pa.string_view()),
    "binary_view": pa.array([b"a", b"\xff", None] * 2, pa.binary_view()),
    "large_string": pa.array(["a", "b", None] * 2, pa.large_string()),
    "runs": runs(pa.array(["x", None])),
    "runs of views": runs(pa.array(["x", "y"], pa.string_view())),
    "dictionary": pa.array(["a", "b", None] * 2).dictionary_encode(),
    "dictionary of views": pa.DictionaryArray.from_arrays(
        pa.array([0, 1] * 3), pa.array(["a", "b"], pa.string_view())
    ),
    "half": pa.array(range(ROWS), pa.float16()),
    "decimal128": pa.array([CENT] * ROWS, pa.decimal128(5, 2)),
    "decimal256": pa.array([CENT] * ROWS, pa.decimal256(60, 2)),
    "list": pa.array([[1, 2], None, []] * 2),
    "list of views": pa.array([["a"], None, []] * 2, pa.list_(pa.string_view())),
    "list of dictionaries": pa.array(
        [["a"], None, ["b"]] * 2, pa.list_(pa.dictionary(pa.int8(), pa.string()))
    ),
    "list_view": pa.array([[1, 2], None, []] * 2, pa.list_view(pa.int64())),
    "list_view of views": pa.array([["a"], None, []] * 2, pa.list_view(pa.string_view())),
    "fixed list": pa.array([[1, 2], None, [3, 4]] * 2, pa.list_(pa.int64(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": "y"}] * 2),
    "struct of views": pa.array([{"b": "x"}, None] * 3, pa.struct([("b", pa.string_view())])),
    "empty struct": pa.array([{}, None] * 3, pa.struct([])),
    "map": pa.array([[("a", 1)], None, []] * 2, pa.map_(pa.string(), pa.int64())),
    "sparse union": union(True),
    "dense union": union(False),
    "interval": pa.array([(1, 2, 3), None] * 3, pa.month_day_nano_interval()),
    "duration": pa.array([1, 2, None] * 2, pa.duration("ns")),
    "time": pa.array([1, 2, None] * 2, pa.time64("ns")),
    "date beyond": pa.array([10**7, -(10**7), None] * 2, pa.date32()),
    "date64 beyond": pa.array([86_400_000 * 10**7, 0, None] * 2, pa.date64()),
    "time beyond": pa.array(FAR, pa.timestamp("s")),
    "time beyond, in a zone": pa.array(FAR, pa.timestamp("s", "Europe/Berlin")),
    "list of times beyond": pa.array([FAR, None] * 3, pa.list_(pa.timestamp("s"))),
    "unknown zone": pa.array([1, 2, None] * 2, pa.timestamp("us", "Mars/Olympus")),
    "impossible zone": pa.array([1, 2, None] * 2, pa.timestamp("ms", "+25:99")),
    "nanoseconds": pa.array([1, 2, None] * 2, pa.timestamp("ns")),
    "null": pa.nulls(ROWS),
    "uuid": wrapped(pa.uuid(), [b"\xff" * 16] * ROWS, pa.binary(16)),
    "json": wrapped(pa.json_(), ["{}"] * ROWS, pa.string()),
    "bool8": wrapped(pa.bool8(), [1, 0] * 3, pa.int8()),
    "bad text": bad_text(),
    "bad text, large": bad_text(pa.large_string()),
    "bad text, dictionary": bad_text().dictionary_encode(),
}
