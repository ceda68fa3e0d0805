"""`edge_opid.archive.gather`: a whole table at once is what a learner had learned row by row."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from support.oracle import relative

from edge_opid import GramLearner, Layout, MismatchError, Sensor
from edge_opid.archive import Gatherer, gather
from edge_opid.archive.sums import BLOCK_NUMBERS
from edge_opid.learner.settings import EVIDENCE_MAX

CLASSES = ("calm", "busy", "alarm")
SENSORS = [
    Sensor("co2", 420.0, 40.0, (-8.0, -1.0, 0.0, 1.0, 8.0)),
    Sensor("light", 0.0, 10.0),
    Sensor("temp", 20.0, 5.0),
]
LAYOUT = Layout(SENSORS, ["light"])


def drawn(n, labelled=1.0, seed=3):
    """A table with gaps, gated values and, in some rows, labels."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    table = {
        "co2": 420 + 40 * (truth + rng.normal(size=n)),
        "light": 200.0 * rng.random(n),  # mostly beyond the gate
        "temp": np.where(rng.random(n) < 0.1, np.nan, 20 + 5 * rng.normal(size=n)),
    }
    names = np.array(CLASSES, object)[truth]
    names[rng.random(n) >= labelled] = None
    return {**table, "state": names}


def row_by_row(table, layout=LAYOUT):
    """The oracle: the learner of the library, in float64, and every row through `encode`."""
    shape = {"vanishing": layout.vanishing_columns, "surviving": layout.surviving_columns}
    known = GramLearner(**shape, classes=3, dtype="float64")
    every = GramLearner(**shape, classes=1, dtype="float64")
    for i, label in enumerate(table["state"]):
        values = {name: float(table[name][i]) for name in layout.names}
        x = layout.encode({name: v for name, v in values.items() if not np.isnan(v)})
        every.learn_one(x, 0)
        if label is not None:
            known.learn_one(x, CLASSES.index(label))
    return known.summary(), every.summary()


@pytest.mark.parametrize("labelled", [0.0, 0.3, 1.0])
def test_a_gathered_table_is_the_summary_of_a_learner(labelled):
    """No label at all, some, all; hats, a gated sensor, gaps. Float64 both: 1e-12 and room."""
    table = drawn(600, labelled)
    found = gather(table, LAYOUT, classes=CLASSES, label="state")
    known, every = row_by_row(table)
    assert (found.summary.readings, found.everything.readings) == (known.readings, every.readings)
    assert relative(found.everything.gram, every.gram) < 1e-10
    if labelled:
        assert relative(found.summary.gram, known.gram) < 1e-10
        assert relative(found.summary.moments, known.moments) < 1e-10
    assert found.summary.vanishing == LAYOUT.vanishing_columns
    assert not found.refused


def test_arrow_in_any_batches_says_what_arrays_say():
    """Nulls for NaN, text or a dictionary for labels, other column names, batches of any size."""
    table = drawn(2_000, 0.5)
    expected = gather(table, LAYOUT, classes=CLASSES, label="state")
    state = pa.array([f"is {name}" if name else None for name in table["state"]])
    for labels in (state, state.dictionary_encode()):
        arrow = pa.table(
            {
                "CO₂": pa.array(table["co2"]),
                "light": pa.array(table["light"]),
                "temp": pa.array(table["temp"], from_pandas=True),
                "what": labels,
            }
        )
        found = gather(
            arrow.to_reader(max_chunksize=300),
            LAYOUT,
            classes=CLASSES,
            label="what",
            columns={"co2": "CO₂"},
            labels={f"is {name}": name for name in CLASSES},
        )
        assert relative(found.summary.gram, expected.summary.gram) < 1e-12
        assert found.summary.readings == expected.summary.readings


def test_a_flight_stream_is_gathered_while_it_arrives():
    """What InfluxDB 3 and others speak: Arrow Flight, here from a server of our own."""
    flight = pytest.importorskip("pyarrow.flight")
    table = drawn(500)
    plain = {name: list(values) for name, values in table.items()}
    arrow = pa.table(plain)

    class Server(flight.FlightServerBase):
        def do_get(self, _context, _ticket):
            return flight.RecordBatchStream(arrow)

    with (
        Server("grpc://127.0.0.1:0") as server,
        flight.connect(f"grpc://127.0.0.1:{server.port}") as client,
    ):
        reader = client.do_get(flight.Ticket(b"all")).to_reader()
        found = gather(reader, LAYOUT, classes=CLASSES, label="state")
    expected = gather(table, LAYOUT, classes=CLASSES, label="state")
    assert np.array_equal(found.summary.gram, expected.summary.gram)


def test_bad_rows_are_left_out_and_counted():
    """Infinite values, rows without any value, labels that nobody knows: none stops the others."""
    table = drawn(300)
    table["state"][7] = "on fire"
    table["light"][5] = np.inf
    for name in LAYOUT.names:
        table[name][9] = np.nan
    found = gather(table, LAYOUT, classes=CLASSES, label="state")
    assert found.refused == {"non-finite": 1, "empty": 1, "unknown-label": 1}
    assert found.summary.readings == 297
    assert found.everything.readings == 298
    good = [i for i in range(300) if i not in (5, 7, 9)]
    rest = gather(
        {name: values[good] for name, values in table.items()},
        LAYOUT,
        classes=CLASSES,
        label="state",
    )
    assert relative(found.summary.gram, rest.summary.gram) < 1e-12


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ({"co2": [1.0]}, "no column 'light'"),
        ({"co2": [1.0], "light": ["dark"], "temp": [1.0], "state": ["calm"]}, "'light' must hold"),
        ({"co2": [1.0], "light": [1.0], "temp": [1.0, 2.0], "state": ["calm"]}, "equally long"),
        (pa.table({"co2": [1.0], "light": ["dark"], "temp": [1.0], "state": ["calm"]}), "'light'"),
        (42, "dict of arrays or speak Arrow, got int"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_column(table, what):
    """The operator mistyped a name, or took the wrong file."""
    with pytest.raises(MismatchError, match=what):
        gather(table, LAYOUT, classes=CLASSES, label="state")


def test_more_readings_than_float32_can_count_weigh_less_and_are_all_in():
    """Decision 2: a node's learner halves what it knows beyond 2²² readings."""
    gatherer = Gatherer(Layout(["a"]), 2)
    gatherer.sums.readings = int(4 * EVIDENCE_MAX)
    gatherer.sums.labelled[:] = 4 * EVIDENCE_MAX
    summary = gatherer.sums.summary(0, 1.0, 1.0)
    assert (summary.evidence, summary.readings) == (EVIDENCE_MAX, 4 * EVIDENCE_MAX)
    assert summary.gram.max() == EVIDENCE_MAX


def test_gathering_holds_one_block_however_long_the_table():
    """Twenty million rows must not need twenty million rows of memory."""
    gatherer = Gatherer(LAYOUT, 3)
    before = gatherer._columns.nbytes + gatherer._stacked.nbytes
    assert before < 16 * BLOCK_NUMBERS
    columns = {name: np.zeros(200_000, np.float32) for name in LAYOUT.names}
    gatherer.add(columns, np.zeros(200_000, np.int64))
    assert gatherer._columns.nbytes + gatherer._stacked.nbytes == before
    assert gatherer.sums.readings == 200_000


def test_a_dict_of_arrays_needs_numpy_alone():
    """Whoever has no pyarrow can still gather."""
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from edge_opid import Layout\nfrom edge_opid.archive import gather\n"
        "found = gather({'a': [1.0, 2.0], 'y': [0, 1]}, Layout(['a']), classes='01', label='y')\n"
        "print(found.summary.readings)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
