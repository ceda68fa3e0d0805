"""The models beside ours, fed with the same readings, each asked before it learns.

| rival | knows | when sensors change |
|---|---|---|
| fills with zeros | one node's readings | keeps its model; a dead sensor counts as its reference, \
which is 0 once scaled; a new one gets a column of its own, which was at its reference before |
| starts over | one node's readings since its last change | forgets everything |
| keeps all readings | every reading of every node so far | is solved again for the columns now \
alive |

All are ridge regressions on one-hot classes with the same ρ, in float64, on values scaled by the
data sheet (or, without one, by the sensor's own first readings). Filling with the reference is
kinder than filling with a raw 0, which may be far from any value. **Keeps all readings** is the
best linear model, and the bar. It keeps what no node and no gateway can keep, all readings of the
fleet, and at every instance solves the ridge for the columns that the node has now, twice: from the
node's own readings, and from those of all nodes; what counts is whichever was right more often over
the node's last 100 labelled readings. A column is a role, as in a layout: what another make
measured in it before counts, and before there was any sensor in the role it was at its reference.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from firmware_sim.scenario.script import Script, ScriptedInstance

ZERO_FILLING, RESTARTED, BEST = "fills with zeros", "starts over", "keeps all readings"
RIVALS = (ZERO_FILLING, RESTARTED, BEST)
RHO = 1.0
LATELY = 100  # labelled readings of a node
GATE = 8.0  # as in a node: what is further off is not believed
Floats = NDArray[np.float64]


class Ridge:
    """Sums over readings, for named columns; solved for some of them when somebody asks.

    >>> ridge = Ridge(["temp"], classes=2)
    >>> for value in (-1.0, 1.0):
    ...     ridge.learn({"temp": value}, int(value > 0))
    >>> ridge.guess({"temp": 0.5}, ["temp"])
    1
    """

    def __init__(self, columns: Iterable[str], classes: int) -> None:
        self._place = {name: number for number, name in enumerate(columns)}
        width = len(self._place) + 1  # and the bias
        self._gram = np.zeros((width, width))
        self._moments = np.zeros((width, classes))

    def learn(self, values: dict[str, float], truth: int) -> None:
        """One labelled reading; a column without a value is at its reference."""
        x = self._row(values)
        self._gram += np.outer(x, x)
        self._moments[:, truth] += x

    def guess(self, values: dict[str, float], alive: Sequence[str]) -> int:
        """The class, by the best weights for these columns alone."""
        chosen = [*(self._place[name] for name in alive), len(self._place)]
        x = self._row(values)[chosen]
        A = self._gram[np.ix_(chosen, chosen)] + RHO * np.eye(len(chosen))
        return int((x @ np.linalg.solve(A, self._moments[chosen])).argmax())

    def _row(self, values: dict[str, float]) -> Floats:
        x = np.zeros(len(self._place) + 1)
        x[-1] = 1.0
        for name, value in values.items():
            x[self._place[name]] = value
        return x


class ZeroFilling:
    """All sensors for ever: what many do today."""

    def __init__(self, script: Script, node: str) -> None:
        self._ids = [life.sensor.id for life in script.lives(node)]
        self._ridge = Ridge(self._ids, len(script.classes))

    def guess(self, values: dict[str, float]) -> int:
        """Dead sensors are 0 in `values` by not being there."""
        return self._ridge.guess(values, self._ids)

    def learn(self, values: dict[str, float], truth: int) -> None:
        """One labelled reading."""
        self._ridge.learn(values, truth)


class Restarted:
    """A new model after each change: what the others do."""

    def __init__(self, script: Script, node: str) -> None:
        self._script, self._node = script, node
        self._ids: tuple[str, ...] = ()
        self._ridge = Ridge((), len(script.classes))

    def guess(self, values: dict[str, float], place: int) -> int:
        """By what was learned since the last change."""
        self._move_to(place)
        return self._ridge.guess(values, self._ids)

    def learn(self, values: dict[str, float], truth: int) -> None:
        """One labelled reading, unless it is of sensors that are no more."""
        if set(values) <= set(self._ids):
            self._ridge.learn(values, truth)

    def _move_to(self, place: int) -> None:
        ids = tuple(sensor.id for sensor in self._script.alive(self._node, place))
        if ids != self._ids:
            self._ids, self._ridge = ids, Ridge(ids, len(self._script.classes))


class BestLinear:
    """The bar for one node; `everybody` is shared by all nodes."""

    def __init__(self, script: Script, roles: Sequence[str], everybody: Ridge) -> None:
        self._ridges = {"own": Ridge(roles, len(script.classes)), "all": everybody}
        self._right = {name: deque[bool](maxlen=LATELY) for name in self._ridges}
        self._said: dict[int, dict[str, int]] = {}  # by place, until the truth is known

    def guess(self, values: dict[str, float], alive: Sequence[str], place: int, keep: bool) -> int:
        """By whichever was right more often lately; `keep` where the truth will be told."""
        said = {name: ridge.guess(values, alive) for name, ridge in self._ridges.items()}
        if keep:
            self._said[place] = said
        best = max(self._right, key=lambda name: sum(self._right[name]))
        return said[best]

    def learn(self, values: dict[str, float], truth: int, place: int) -> None:
        """One labelled reading, for the node and for everybody."""
        for name, guess in self._said.pop(place).items():
            self._right[name].append(guess == truth)
        for ridge in self._ridges.values():
            ridge.learn(values, truth)


class Rivals:
    """All of them, for a whole fleet, reading by reading.

    >>> from firmware_sim.scenario.scenario import load_scenario
    >>> script = Script(load_scenario("one_retire"), seed=7)
    >>> rivals = Rivals(script)
    >>> guesses = [rivals.step(place)["n1"][BEST] for place in range(100)]
    >>> set(guesses) <= set(script.classes)
    True
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._zero = {node: ZeroFilling(script, node) for node in script.nodes}
        self._restarted = {node: Restarted(script, node) for node in script.nodes}
        roles = {life.sensor.role for node in script.nodes for life in script.lives(node)}
        everybody = Ridge(sorted(roles), len(script.classes))
        self._best = {node: BestLinear(script, sorted(roles), everybody) for node in script.nodes}
        self._role = {
            (node, life.sensor.id): life.sensor.role
            for node in script.nodes
            for life in script.lives(node)
        }
        self._waiting: deque[ScriptedInstance] = deque()

    def step(self, place: int) -> dict[str, dict[str, str]]:
        """What each says of each node's next instance; then they learn what becomes known."""
        found = {}
        for node in self._script.nodes:
            instance = self._script.instance(node, place)
            found[node] = self._guesses(instance)
            if instance.known:
                self._waiting.append(instance)
        late = self._script.scenario.label_late
        while self._waiting and self._waiting[0].place <= place - late:
            self._learn(self._waiting.popleft())
        return found

    def _guesses(self, instance: ScriptedInstance) -> dict[str, str]:
        node, place, values = instance.node, instance.place, self._scaled(instance)
        roles = [sensor.role for sensor in self._script.alive(node, place)]
        guesses = {
            ZERO_FILLING: self._zero[node].guess(values),
            RESTARTED: self._restarted[node].guess(values, place),
            BEST: self._best[node].guess(
                self._by_role(node, values), roles, place, keep=instance.known
            ),
        }
        return {name: self._script.classes[guess] for name, guess in guesses.items()}

    def _learn(self, instance: ScriptedInstance) -> None:
        values, truth = self._scaled(instance), self._script.classes.index(instance.truth)
        self._zero[instance.node].learn(values, truth)
        self._restarted[instance.node].learn(values, truth)
        roles = self._by_role(instance.node, values)
        self._best[instance.node].learn(roles, truth, instance.place)

    def _scaled(self, instance: ScriptedInstance) -> dict[str, float]:
        scaled = {}
        for sensor, value in instance.values.items():
            reference, scale = self._script.sheet(instance.node, sensor)
            z = (value - reference) / scale
            if abs(z) <= GATE:
                scaled[sensor] = z
        return scaled

    def _by_role(self, node: str, values: dict[str, float]) -> dict[str, float]:
        return {self._role[node, sensor]: value for sensor, value in values.items()}
