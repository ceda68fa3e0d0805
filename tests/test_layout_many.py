"""Columns of many readings: what `encode` says row by row, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_opid import Layout, Pair, ReadingError, Sensor

SENSORS = (
    Sensor("a", 20.0, 5.0),
    Sensor("b", -3.5, 0.25, (-8.0, -1.0, 0.1, 2.0, 8.0)),
    Sensor("c", 420.0, 37.0, (-2.0, 2.0)),
    Sensor("d", 0.0, 1e-3),
)
value = st.one_of(
    st.just(float("nan")),
    st.floats(-1e12, 1e12),
    st.floats(-50, 50),
    st.floats(380, 460, width=32),
)


def row_by_row(layout, columns):
    n = len(next(iter(columns.values())))
    rows = [
        {name: float(v[i]) for name, v in columns.items() if not np.isnan(v[i])} for i in range(n)
    ]
    return np.array([layout.encode(row) for row in rows])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(value, value, value, value), min_size=1, max_size=12),
    st.sets(st.sampled_from("abcd")),
    st.sampled_from(["float64", "float32"]),
    st.booleans(),
)
def test_many_readings_are_encoded_as_one_by_one(rows, vanishing, dtype, paired):
    """Absurd, gated, missing and normal values; hats, straight columns, pairs; both floats."""
    pairs = [Pair("a", "b", 3)] if paired else []
    layout = Layout(SENSORS, vanishing, pairs)
    columns = {
        name: np.array(each, dtype)
        for name, each in zip("abcd", zip(*rows, strict=True), strict=True)
    }
    assert np.array_equal(layout.encode_many(columns), row_by_row(layout, columns))


def test_a_sensor_without_a_column_counts_as_missing():
    """An archive from before a sensor was bought."""
    layout = Layout(SENSORS)
    some = {"a": np.array([21.0, 22.0])}
    assert np.array_equal(layout.encode_many(some), row_by_row(layout, some))


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"a": np.array([1.0, np.inf])}, "sensor 'a' is inf in row 1"),
        ({"x": np.array([1.0])}, "no sensor 'x' here"),
        ({"a": np.ones(2), "b": np.ones(3)}, r"one length, got \[2, 3\]"),
    ],
)
def test_what_encode_refuses_is_refused_with_its_row(columns, what):
    """An infinite value in a million rows has to be found."""
    with pytest.raises(ReadingError, match=what):
        Layout(SENSORS).encode_many(columns)
