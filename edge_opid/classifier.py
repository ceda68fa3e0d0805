"""A classifier for sensors that come and go: dict in, label out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_opid.errors import LayoutError, MismatchError, OpidError, ReadingError, Refusal
from edge_opid.layout import FirstValues, Layout, ScaleWatch, Sensor, WarmUp
from edge_opid.layout.first_values import has_moved
from edge_opid.learner import Settings
from edge_opid.node.journal_records import pack_state, unpack_state
from edge_opid.node.logistic import Sharpness
from edge_opid.node.memories import Learning, Memories, Survivors
from edge_opid.node.scoreboard import PredictorName, Scoreboard
from edge_opid.node.time_layer import Record
from edge_opid.store.whole_file import write_whole

MEASURED = 20  # values of a new sensor from which its reference and scale are taken
SILENT = 20  # readings in a row without a sensor after which it counts as dead
PATTERNS = 64  # sets of missing sensors whose solutions are kept until the next reading is learned
JUDGED = (PredictorName.LONG, PredictorName.LATELY)  # whose record decides what to carry
CLASSES_MAX = 1000  # more are no classes: somebody has passed a measurement as a label

FLOAT32_MAX = float(np.finfo(np.float32).max)

Values = dict[str, float]
"""The sensors that are there in a reading: finite numbers by name."""
Vector = NDArray[np.float64]


class Classifier:
    """Learns from labelled readings, one at a time, while sensors die and new ones are installed.

    A reading is a dict of sensor names and numbers; a label is a string (or any hashable value).
    Use it if readings arrive as a stream and cannot be kept, and if the sensors change over time.
    It runs the learners of a node (`edge_opid.node.memories`) without a broker, a disk or a clock.

    - A sensor **missing** from a reading (left out, None or NaN) is not filled in: the weights are
      solved for the sensors present. After 20 readings without it, it counts as dead; it is used
      again when it reports again. `retire` removes it for good at once.
    - A **new** name is a new sensor. Its first 20 values give its reference and scale; then it gets
      a column, and nothing learned with the others is lost. `deploy` sets its scale; `replace` lets
      it continue where another sensor stops.
    - A **class** exists from its first label.
    - `merge` adds up what two classifiers have learned separately.

    **Cost**: with d columns (one per sensor, or per knot) and c classes, at most 4·d² + 176·d +
    24·d·c bytes, half as much again while a sensor is silent, and 4·d for each of the first
    `warmup` readings until their scales are fixed. This does not grow with readings. A reading of
    16 sensors is predicted and learned in about 0.2 ms; the first prediction with another set of
    missing sensors after a reading was learned takes about d³ more operations.

    `sensors`: those whose reference and scale are known. If none are given, both are estimated
    from the first readings, after 2, 4, 8 … and `warmup` of them. `knots`: 1 for a straight line
    through each measured sensor, 8 for a curve (see `Sensor`). `rho`: the ridge penalty ρ of Eq.
    2; a larger value makes weights smaller. `forgetting`: how much a reading still counts after
    each new one; 1 never forgets, 0.999 remembers about a thousand. `columns_max`: the largest
    number of columns; the state grows with its square.

    >>> from edge_opid import Classifier
    >>> classifier = Classifier()
    >>> for co2, temp, room in [(420, 19, "empty"), (600, 23, "full"), (410, 18, "empty")] * 5:
    ...     classifier.learn_one({"co2": co2, "temp": temp}, room)
    >>> classifier.predict_one({"co2": 580, "temp": 22})
    'full'
    >>> classifier.predict_one({"temp": 22})  # the CO2 sensor has died
    'full'
    >>> print(f"{classifier.predict_proba_one({'temp': 22})['full']:.2f}")
    0.92
    >>> classifier
    <Classifier: 2 sensors, 2 classes, 15 readings, 0.6 kB>
    """

    def __init__(
        self,
        sensors: Iterable[Sensor] | None = None,
        *,
        knots: int = 1,
        rho: float = 1.0,
        forgetting: float = 1.0,
        warmup: int = 200,
        columns_max: int = 1024,
    ) -> None:
        self.sensors = tuple(sensors) if sensors else None
        self.knots, self.rho, self.forgetting = knots, rho, forgetting
        self.warmup, self.columns_max = warmup, columns_max
        Settings(
            vanishing=0, surviving=1, classes=1, rho=rho, forgetting=forgetting
        )  # complain here, not at the first reading
        WarmUp(["any"], warmup, knots)
        self.readings = 0
        """Labelled readings learned, including those of merged classifiers."""
        self._classes: dict[Hashable, int] = {}
        self._given = Layout(self.sensors) if self.sensors else None
        self._warmup: WarmUp | None = None
        self._memories: Memories | None = None
        self._joining: dict[str, FirstValues] = {}
        """Sensors without a column: they are new, or have not moved yet."""
        self._kept_scales = {sensor.name for sensor in self.sensors or ()}
        """Sensors whose scales somebody gave: those are not moved."""
        self._watch = ScaleWatch()
        self._retired: set[str] = set()
        self._absent: dict[str, int] = {}
        """How many readings in a row each missing sensor has been missing."""
        self._solved: dict[frozenset[str], Survivors] = {}
        """What was solved for predictions without some sensors; derived, and not saved."""
        self._board, self._sharpness, self._record = Scoreboard(), Sharpness(), Record()

    # -- looking -------------------------------------------------------------------------------

    @property
    def classes(self) -> list[Hashable]:
        """The labels learned so far, in the order in which they came."""
        return list(self._classes)

    @property
    def layout(self) -> Layout | None:
        """The sensors in use, with reference, scale and knots; None before there are any."""
        return self._memories.full if self._memories else self._given

    def __repr__(self) -> str:
        sensors = len(self.layout.names) if self.layout else 0
        known = f"{sensors} sensors, {len(self._classes)} classes, {self.readings} readings"
        size = f", {self._memories.nbytes / 1000:.1f} kB" if self._memories else ""
        return f"<{type(self).__name__}: {known}{size}>"

    # -- predicting ----------------------------------------------------------------------------

    def predict_one(self, x: Mapping[Any, Any]) -> Any:
        """The most probable label; None before anything was learned."""
        scores = self._scores(self._present(x))
        return list(self._classes)[int(scores.argmax())] if len(scores) else None

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        """The probability of every label seen so far; {} before anything was learned.

        As on a node: of what was said with 0.8 so far, eight in ten were right. What the last
        label and its age say is left out, as a classifier is not told the time.
        """
        found = self._probabilities(x) if self._classes else np.zeros(0)
        return dict(zip(self._classes, found.tolist(), strict=True))

    def predict_many(self, X: Any) -> Any:
        """The label for each row of a DataFrame, or of a dict of arrays, as a list."""
        return [self.predict_one(row) for row in rows_of(X)]

    def predict_proba_many(self, X: Any) -> Any:
        """The probabilities for each row, as a dict of an array a label."""
        found = [list(self.predict_proba_one(row).values()) for row in rows_of(X)]
        table = np.array(found).reshape(len(found), len(self._classes))
        return {label: table[:, number] for label, number in self._classes.items()}

    def _probabilities(self, x: Mapping[Any, Any]) -> Vector:
        likely = self._sharpness.probabilities(self._scores(self._present(x)))
        return np.array(self._record.corrected(likely.tolist()))

    def _scores(self, values: Values) -> NDArray[np.float32]:
        if self._memories is None:  # nothing was learned, or one reading
            return np.zeros(len(self._classes), np.float32)
        solved = self._solved_for(self._memories, values)
        return solved.own(_encoded(solved.layout, values)[0])

    def _solved_for(self, memories: Memories, values: Values) -> Memories | Survivors:
        """What is known, without the sensors that are missing."""
        names = memories.layout.names
        missing = frozenset(name for name in names if name not in values)
        if not missing or len(missing) == len(names):
            return memories
        if missing not in self._solved:
            if len(self._solved) == PATTERNS:
                self._solved.clear()
            self._solved[missing] = memories.without(missing)
        return self._solved[missing]

    def _present(self, x: Mapping[Any, Any]) -> Values:
        """The finite numbers of a reading, by the names of sensors that nobody has retired."""
        if not hasattr(x, "items"):
            sentence = f"a reading must be a dict of names and numbers, got {type(x).__name__}"
            raise ReadingError(Refusal("type", sentence))
        values = {}
        for key, value in x.items():
            name = key if isinstance(key, str) else str(key)
            if value is None or name in self._retired:
                continue
            number = _number(name, value)
            if not math.isnan(number):
                values[name] = number
        return values

    # -- learning ------------------------------------------------------------------------------

    def learn_one(self, x: Mapping[Any, Any], y: Hashable) -> None:
        """Learn one labelled reading. A bad one raises an error and changes nothing."""
        values, label = self._present(x), self._label(y)
        self._check([values], [label])
        self._learn(values, label)

    def learn_many(self, X: Any, y: Iterable[Hashable]) -> None:
        """Learn the rows of a DataFrame, or of a dict of arrays, one after the other.

        All of them, or, if one is bad, none.
        """
        readings = [self._present(row) for row in rows_of(X)]
        labels = [self._label(label) for label in y]
        if len(readings) != len(labels):
            sentence = f"expected a label for each of {len(readings)} rows, got {len(labels)}"
            raise ReadingError(Refusal("width", sentence))
        self._check(readings, labels)
        for values, label in zip(readings, labels, strict=True):
            self._learn(values, label)

    def _label(self, y: Any) -> Hashable:
        label = y.item() if isinstance(y, np.generic) else y
        if label is None or _is_nan(label) or not isinstance(label, Hashable):
            sentence = f"a label must be a string or another hashable value, got {y!r}"
            raise ReadingError(Refusal("label", sentence))
        return label

    def _check(self, readings: Iterable[Values], labels: Iterable[Hashable]) -> None:
        """Refuse what cannot be learned, before anything has changed."""
        if not all(readings):
            raise ReadingError(Refusal("empty", "a reading has no value of any sensor in use"))
        if len({*self._classes, *labels}) > CLASSES_MAX:
            sentence = f"more than {CLASSES_MAX} classes: is the label a measurement?"
            raise ReadingError(Refusal("label", sentence))
        here = set(self.layout.names) if self.layout else set()
        named = set(chain(*readings, self._joining, self._warmup.names if self._warmup else ()))
        if not named <= here:
            Layout(named | here)  # refuses names that are too long, and the one of the bias
            self._check_width((self.layout.width if self.layout else 1), len(named - here))

    def _check_width(self, width: int, new: int) -> None:
        wanted = width + self.knots * new
        if wanted > self.columns_max:
            raise LayoutError(
                f"{new} new sensors would make {wanted} columns, and columns_max is "
                f"{self.columns_max}: retire sensors that are gone, or give a larger one"
            )

    def _learn(self, values: Values, label: Hashable) -> None:
        number = self._classes.setdefault(label, len(self._classes))
        self.readings += 1
        self._solved.clear()
        if self._memories is None and self._warmup is None:
            self._begin(values)
        if self._memories and number == self._memories.learning.classes:
            self._memories.add_classes(number + 1)
        if self._warmup is None:
            self._notice(values)
        elif self._warm(self._warmup, values, number):
            return
        if self._memories is not None:
            self._step(values, number)

    def _begin(self, values: Values) -> None:
        if self._given is None:
            self._warmup = WarmUp(values, self.warmup, self.knots, first=2)
        else:
            self._memories = Memories(self._given, self._learning)

    @property
    def _learning(self) -> Learning:
        # Every reading comes with its label, so that there are no others to learn from.
        return Learning(len(self._classes), 1.0, self.rho, self.forgetting, unlabelled=False)

    def _step(self, values: Values, number: int) -> None:
        """Every memory learns, and is judged by what it said before."""
        x, gated = _encoded(self._known.layout, values)
        found = self._known.score_then_learn(x, number)
        said = self._known.blend.of(found)
        self._record.take_down(self._sharpness.probabilities(said).tolist(), number)
        self._sharpness.learn(said, number)
        self._known.blend.record(found, number)
        guesses = {name: int(found[name].argmax()) for name in JUDGED}
        self._board.record(guesses, number)
        if self._warmup is None:
            self._watch_scales(values, gated)

    def _watch_scales(self, values: Values, gated: tuple[str, ...]) -> None:
        """Move what was learned of a sensor to another scale, where its own proves wrong."""
        if not self._watch.note(values, gated):
            return
        full = self._known.full
        movable = [sensor for sensor in full.sensors if sensor.name not in self._kept_scales]
        wrong = self._watch.take_wrong(movable, full.gate, gated=bool(gated))
        moved = {sensor.name: sensor for sensor in wrong}
        if not moved:
            return
        sensors = [moved.get(sensor.name, sensor) for sensor in full.sensors]
        clipped = [name for name in moved if name in self._watch.counts]
        self._known.rescale(Layout(sensors, full.vanishing, gate=full.gate), clipped)
        self._solved.clear()

    @property
    def _known(self) -> Memories:
        assert self._memories is not None  # something has been learned
        return self._memories

    def _warm(self, warmup: WarmUp, values: Values, number: int) -> bool:
        """Keep a reading; when better scales are due, learn all that are kept anew."""
        if not values.keys() <= set(warmup.names):
            warmup = self._warmup = warmup.with_sensors(values)
        warmup.add(values, number)
        due = warmup.due
        if due:
            self._estimate(warmup, for_good=warmup.full)
        if warmup.full:
            self._warmup = None
        return due

    def _estimate(self, warmup: WarmUp, *, for_good: bool) -> None:
        """Learn what the warm-up has kept, in the layout of the sensors that have moved.

        For good, those who were seldom there, or have not moved, are measured when they have.
        """
        rows, layout = list(warmup.rows()), warmup.layout()
        waiting = {name for name in layout.names if not has_moved(warmup.values_of(name))}
        if warmup.full:
            seen = Counter(name for values, _ in rows for name in values)
            waiting |= {name for name in layout.names if 10 * seen[name] < len(rows)}
        if len(waiting) == len(layout.names):
            waiting = set()  # nobody has moved: any scale will do until somebody does
        layout = layout.retire(*waiting)
        if for_good:
            self._joining |= {
                name: self._first_values(name, warmup.values_of(name).tolist()) for name in waiting
            }
        self._memories = Memories(layout, self._learning)
        self._board, self._sharpness, self._record = Scoreboard(), Sharpness(), Record()
        for values, number in rows:
            self._step(values, number)

    # -- sensors that come and go --------------------------------------------------------------

    def retire(self, name: str, *, carry: float | None = None) -> None:
        """A sensor is gone for good, whatever is still said in its name.

        `carry`: how much of the evidence is kept, from 1 (all) to 0 (the weights, but not how sure
        they were). None is what a node does: the less, the better a forgetful learner has been.
        """
        self._freeze(name)
        if self._joining.pop(name, None) is None:
            gone = self._find(name)
            self._change([sensor for sensor in self._sensors if sensor is not gone], carry)
        self._retired.add(name)

    def deploy(self, sensor: Sensor | str, *, carry: float | None = None) -> None:
        """A new sensor: with its reference and scale, or a name whose first values tell them."""
        name = sensor if isinstance(sensor, str) else sensor.name
        if self.layout is not None and name in self.layout.names:
            raise LayoutError(f"cannot deploy {name!r}: it is in use; see replace, or retire it")
        if isinstance(sensor, Sensor):
            self._freeze()
            self._change([*self._sensors, sensor], carry)
            self._joining.pop(name, None)
            self._kept_scales.add(name)
        self._retired.discard(name)

    def replace(self, old: str, new: Sensor | str, *, carry: float | None = None) -> None:
        """`new` continues where `old` stops: on its scale, unless it comes as a `Sensor`."""
        self._freeze(old)
        before = self._find(old)
        after = new if isinstance(new, Sensor) else replace(before, name=new)
        others = [sensor for sensor in self._sensors if sensor is not before]
        self._change([*others, after], carry, {after.name: old})
        self._retired = {*self._retired, old} - {after.name}
        self._joining.pop(after.name, None)

    @property
    def _sensors(self) -> tuple[Sensor, ...]:
        return self.layout.sensors if self.layout else ()

    def _find(self, name: str) -> Sensor:
        for sensor in self._sensors:
            if sensor.name == name:
                return sensor
        names = [sensor.name for sensor in self._sensors]
        raise LayoutError(f"there is no sensor {name!r}; there are {names}")

    def _freeze(self, name: str | None = None) -> None:
        """A change of sensors ends the estimation of scales, unless it is of a stranger."""
        if self._warmup is not None and (name is None or name in self._warmup.names):
            self._estimate(self._warmup, for_good=True)
            self._warmup = None

    def _change(
        self,
        sensors: Iterable[Sensor],
        carry: float | None = None,
        replaces: Mapping[str, str] | None = None,
    ) -> None:
        full = Layout(sensors)
        self._check_width(full.width, 0)
        if carry is not None and not 0 <= carry <= 1:
            raise LayoutError(f"carry must be 0..1, got {carry}")
        self._solved.clear()
        if self._memories is None:
            self._given = full
            return
        if back := {*(replaces or {}).values()} & {*self._memories.silent}:
            self._memories.take_back(back)  # so that their columns are there to be continued
        silent = tuple(name for name in self._memories.silent if name in full.names)
        self._memories.silent = silent if len(silent) < len(full.names) else ()
        self._memories.change(full, self._board.carry() if carry is None else carry, replaces)
        self._absent = {name: n for name, n in self._absent.items() if name in full.names}
        self._watch.keep_only(full.names)
        for name in replaces or {}:
            self._watch.forget(name)

    def _notice(self, values: Values) -> None:
        """Who is back, who has been away for too long, and who is new."""
        memories = self._known
        if back := [name for name in memories.silent if name in values]:
            memories.take_back(back)
        alive = memories.alive
        self._absent = {n: self._absent.get(n, 0) + 1 for n in alive if n not in values}
        dead = [name for name, missed in self._absent.items() if missed >= SILENT]
        if dead and len(dead) < len(alive):
            memories.silence(dead, self._board.carry())
        if len(values) + len(self._absent) + len(memories.silent) > len(memories.full.names):
            self._measure({n: v for n, v in values.items() if n not in memories.full.names})

    def _measure(self, new: Values) -> None:
        """Take down the first values of new sensors; who has enough of them joins."""
        for name, value in new.items():
            if name not in self._joining:
                self._joining[name] = self._first_values(name)
            self._joining[name].add(value)
        ready = [name for name in new if self._joining[name].ready]
        measured = [self._joining.pop(name).sensor() for name in ready]
        if measured:
            self._change([*self._sensors, *measured])

    def _first_values(self, name: str, values: Iterable[float] = ()) -> FirstValues:
        first = FirstValues(name, MEASURED, self.knots)
        for value in values:
            first.add(value)
        return first

    # -- adding up and saving ------------------------------------------------------------------

    def merge(self, other: Classifier) -> None:
        """Add what another classifier has learned, exactly; the other one does not change.

        Sensors are matched by name and moved to the scales of this one, classes by label. Sensors
        with knots must be equal in both. The logistic memory, whose steps do not add up, starts
        anew. This ends the estimation of scales.
        """
        if other.rho != self.rho:
            raise MismatchError(f"cannot merge: rho is {self.rho} here and {other.rho} there")
        mine, theirs = deepcopy(self), deepcopy(other)
        mine._freeze()
        theirs._freeze()
        for name in mine._retired & {sensor.name for sensor in theirs._sensors}:
            theirs.retire(name, carry=1.0)
        if theirs._memories is not None:
            mine._add(theirs, theirs._memories)
        self.__dict__.update(mine.__dict__)  # all of it or, after an error above, nothing

    def _add(self, other: Classifier, theirs: Memories) -> None:
        for label in other._classes:
            self._classes.setdefault(label, len(self._classes))
        here = {sensor.name for sensor in self._sensors}
        new = [sensor for sensor in other._sensors if sensor.name not in here]
        if new:
            self._change([*self._sensors, *new], carry=1.0)
        if self._memories is None and self._given is not None:
            self._memories = Memories(self._given, self._learning)
        if len(self._classes) > self._known.learning.classes:
            self._known.add_classes(len(self._classes))
        for memories in (self._known, theirs):
            if memories.silent:
                memories.take_back(memories.silent)
        self._known.merge(theirs, [self._classes[label] for label in other._classes])
        self.readings += other.readings
        self._solved.clear()

    def save(self, path: str | Path) -> None:
        """Write everything into one file, from which `load` makes the same classifier, to the bit.

        Labels must be strings, numbers or booleans; others can only be pickled.
        """
        odd = [label for label in self._classes if not isinstance(label, str | int | float)]
        if odd:
            raise TypeError(f"label {odd[0]!r} cannot be saved, only str, int, float and bool")
        write_whole(Path(path), pack_state(self.state()))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The classifier that `save` wrote."""
        try:
            return cls.from_state(unpack_state(Path(path).read_bytes()))
        except (OpidError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise MismatchError(f"{path} is not a saved classifier: {error}") from error

    def state(self) -> dict[str, Any]:
        """Plain values and arrays, for `from_state`."""
        options = "knots", "rho", "forgetting", "warmup", "columns_max"
        return {
            "options": {name: getattr(self, name) for name in options},
            "sensors": Layout(self.sensors).to_dict() if self.sensors else None,
            "readings": self.readings,
            "classes": list(self._classes),
            "layout": self.layout and self.layout.to_dict(),
            "memories": self._memories and self._memories.state(),
            "warmup": self._warmup and [self._warmup.names, list(self._warmup.rows())],
            "joining": {name: first.state() for name, first in self._joining.items()},
            "kept_scales": sorted(self._kept_scales),
            "watch": self._watch.state(),
            "retired": sorted(self._retired),
            "absent": self._absent,
            "scoreboard": self._board.state(),
            "sharpness": self._sharpness.state(),
            "record": self._record.knots,
        }

    @classmethod
    def from_state(cls, saved: Mapping[str, Any]) -> Self:
        """The classifier that `state` described."""
        sensors = Layout.from_dict(saved["sensors"]).sensors if saved["sensors"] else None
        found = cls(sensors, **saved["options"])
        found.readings = saved["readings"]
        found._classes = {label: number for number, label in enumerate(saved["classes"])}
        found._given = Layout.from_dict(saved["layout"]) if saved["layout"] else None
        if saved["memories"] and found._given:
            found._memories = Memories(found._given, found._learning)
            found._memories.restore(saved["memories"])
        if saved["warmup"]:
            names, rows = saved["warmup"]
            found._warmup = WarmUp(names, found.warmup, found.knots, first=2).add_all(rows)
        for name, first in saved["joining"].items():
            found._joining[name] = found._first_values(name).restore(first)
        found._kept_scales = set(saved["kept_scales"])
        found._watch = ScaleWatch.restored(saved["watch"])
        found._retired, found._absent = set(saved["retired"]), dict(saved["absent"])
        found._board = Scoreboard.from_state(saved["scoreboard"])
        found._sharpness = Sharpness(*saved["sharpness"])
        found._record = Record(saved.get("record"))  # none in a file from before there was one
        return found


def rows_of(X: Any) -> Iterator[dict[str, Any]]:
    """The rows of a DataFrame, or of a dict of arrays, as dicts.

    >>> list(rows_of({"temp": [19, 23], "co2": np.array([420.0, np.nan])}))
    [{'temp': 19, 'co2': 420.0}, {'temp': 23, 'co2': nan}]
    """
    names = list(getattr(X, "columns", X))
    columns = [X[name].tolist() if hasattr(X[name], "tolist") else list(X[name]) for name in names]
    if len({len(column) for column in columns}) > 1:
        lengths = {name: len(column) for name, column in zip(names, columns, strict=True)}
        raise ReadingError(Refusal("width", f"columns must be of one length, got {lengths}"))
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _encoded(layout: Layout, values: Values) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """The columns, and who is at the gate."""
    return layout.encode_and_gate({n: values[n] for n in layout.names if n in values})


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, str | bytes) or abs(number := float(value)) > FLOAT32_MAX:
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        said = "beyond every float" if isinstance(error, OverflowError) else repr(value)
        sentence = f"sensor {name!r} is {said}: expected a finite number, or None if missing"
        raise ReadingError(Refusal("type", sentence)) from error
    return number
