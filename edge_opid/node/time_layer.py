"""Time is a sensor: what the last label and the last readings say about this one, and how surely.

A model sees one reading and nothing of what came before. The world is seldom so forgetful: a room
that was full a minute ago is probably full, and of ten readings in a row the odd one is noise. This
layer stands behind whichever predictor is served. It takes the predictor's scores, and

1. puts them on one scale: a sharpness for each predictor, learned from how right it was;
2. asks how far they follow an **order**: scores of neighbouring readings that have nothing in
   common (a shuffled stream) make everything below count for nothing, without a single label;
3. adds what the **last readings** said: a belief about the class, which every reading's scores move
   and which is forgotten a little at each;
4. adds the **last known label**, as much as labels of its class still held at that age, and what
   the model had said there: a model that was wrong then, and still says the same, is wrong now;
5. weighs these four kinds of evidence by weights that are moved by every label;
6. and says how **surely**: as often as it was right before, when it was as sure.

A label teaches the layer from the evidence as it was when its instance was predicted, however late
it comes, and goes into the record with what was said then. Of labels that overlap (each looks back
a hundred readings, and the next one follows after one) each counts for as much as is new in it: a
hundred mistakes in a row are one thing that happened, and not a hundred reasons for doubt. Ages are
in seconds of the instances' own time.

Everything is a fold over its calls, in float64: the four operations, square roots, and sums from
the first item to the last. So the same calls give the same bits on every CPU, here and in the C
file (`native/time_layer.h`), which does the same faster; this file is its specification, and
`compiled_time_layer` makes the one that is there. Decisions 30 and 42 have the figures.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_opid.node.logistic import Sharpness, added, likely_list
from edge_opid.node.scoreboard import PredictorName

Floats = Sequence[float]

FORGOTTEN = 0.2  # the share of the belief from the last readings that is lost at each
RHYTHM = 0.05  # how fast the usual time between readings is learned; a pause counts as four
FOLLOWED = 0.005  # how fast the order of scores is learned: two hundred readings
CHANCE, CLEAR = 0.3, 0.5  # a correlation of neighbours up to the first is none, above it is order
IN_ORDER = 0.5  # of that: a stream that follows an order
QUIET, NOISY = 0.01, 0.05
"""The share of noise in the scores below which the last readings count for nothing, and above
which for all they say."""
FEW = 20  # readings: from fewer a correlation is hardly known
START = (0.8, 0.45, 0.1, 0.0, -0.3)
"""The weights at first: of the scores, the last readings, the label, and, both as far as the label
still holds, the scores again and those at the label. Those of the development streams, about."""
STEP = 0.1  # how far a weight moves at first
WEIGHT_MAX = 3.0
AGE_MS, AGES = 512, 24
"""Whether labels still held is recorded at 24 ages, each twice the one before: from half a second
to fifty days."""
AKIN = 0.3  # how fast ages say less about each other: 1/(1 + 0.3·octaves²)², up to four octaves
BY_CHANCE = 3.0  # labels for which the guess counts that a class returns only by chance
HELD = 0.999  # what a look back counts for after each new one at its class: a thousand
DOUBTED = 1e-3  # nothing is as sure as not to leave this much for the other classes
SURE = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
"""Where the record of confidence has its knots."""
BELIEVED = 30.0  # labels that a knot's own value counts for against the record
FREQUENCY_FADING = 0.999  # what a label counts for after each new one, as how frequent a class is
FADING = 0.9995  # what a label in that record counts for after each new one: two thousand


MODEL, LABEL, ALL = range(3)
"""The voices: the predictor alone, the last label alone, and all evidence together."""
LEAD = 1.0  # by one label and a standard error the first two must be ahead to be asked instead
LASTING = 0.9995  # what such a lead counts for after each label: two thousand


class Evidence(NamedTuple):
    """What was known when an instance was predicted. A late label is learned from this.

    One array holds all of it, so that 256 instances that wait for a label are small, and the C
    file can fill it in one call: five numbers a class, and five more.
    """

    predictor: PredictorName
    numbers: array[float]

    @classmethod
    def of(
        cls,
        predictor: PredictorName,
        *,
        scores: Floats,
        now: Floats,
        past: Floats,
        then: Floats,
        said: Floats,
        noise: float,
        label: int,
        age_ms: int,
        stays: float,
        time_ms: int,
    ) -> Evidence:
        """From its parts."""
        rest = (noise, label, age_ms, stays, time_ms)
        return cls(predictor, array("d", [*scores, *now, *past, *then, *said, *rest]))

    def _by_class(self, place: int) -> array[float]:
        classes = len(self.numbers) // 5 - 1
        return self.numbers[place * classes : (place + 1) * classes]

    @property
    def scores(self) -> array[float]:
        """As the predictor gave them."""
        return self._by_class(0)

    @property
    def now(self) -> array[float]:
        """The same, sharpened and centred: logits."""
        return self._by_class(1)

    @property
    def past(self) -> array[float]:
        """What the readings before believe, as logits."""
        return self._by_class(2)

    @property
    def then(self) -> array[float]:
        """The logits where the last known label was given, as far as they were wrong."""
        return self._by_class(3)

    @property
    def said(self) -> array[float]:
        """The probabilities that were found from it then, before the record corrected them."""
        return self._by_class(4)

    @property
    def noise(self) -> float:
        """How far it is worth listening to the last readings, from 0 to 1."""
        return self.numbers[-5]

    @property
    def label(self) -> int:
        """The last known one; −1 if there was none."""
        return int(self.numbers[-4])

    @property
    def age_ms(self) -> int:
        """The age of that label."""
        return int(self.numbers[-3])

    @property
    def stays(self) -> float:
        """How probable it is that this label still holds, times the order."""
        return self.numbers[-2]

    @property
    def label_speaks(self) -> bool:
        """Whether the last label says more than which classes are frequent: not without order."""
        return self.label >= 0 and self.stays > 0

    @property
    def time_ms(self) -> int:
        """Of the instance."""
        return int(self.numbers[-1])

    def plain(self) -> list[Any]:
        """Plain values, for `restored`."""
        named = list(self.scores), list(self.now), list(self.past), self.noise, self.label
        rest = self.age_ms, self.stays, list(self.then), self.time_ms, list(self.said)
        return [self.predictor, *named, *rest]

    @classmethod
    def restored(cls, plain: Sequence[Any]) -> Evidence:
        """The evidence that `plain` described, to the bit."""
        name, scores, now, past, noise, label, age_ms, stays, then, time_ms, said = plain
        return cls.of(
            PredictorName(name),
            scores=scores,
            now=now,
            past=past,
            then=then,
            said=said,
            noise=noise,
            label=label,
            age_ms=age_ms,
            stays=stays,
            time_ms=time_ms,
        )


class TimeLayer:
    """One for each node, behind its predictors.

    >>> layer = TimeLayer(classes=2)
    >>> for minute in range(300):  # a model that knows nothing, and a class that lasts ten minutes
    ...     seen = layer.evidence([0.5, 0.5], PredictorName.OWN, 60_000 * minute)
    ...     layer.go_on(seen)
    ...     layer.learn(seen, minute // 10 % 2)
    >>> seen = layer.evidence([0.5, 0.5], PredictorName.OWN, 60_000 * 300)
    >>> [round(each, 1) for each in layer.probabilities(seen)]
    [0.1, 0.9]
    """

    def __init__(self, classes: int) -> None:
        self.weights = list(START)
        self._squares = [0.0] * len(START)
        self._sharpness: dict[PredictorName, Sharpness] = {}
        self._frequency = [1.0] * classes
        self._held = [[[0.0, 0.0] for _ in range(AGES)] for _ in range(classes)]
        """For each class, at each age: looks back at a label, and those where it still held."""
        self._record = Record()
        self._against = [[0.0, 0.0] for _ in range(2)]
        """Of the model alone and the label alone: how often it was right where all evidence
        together was wrong, and the other way round; faded."""
        self._label = -1
        self._label_ms = 0
        self._then = [0.0] * classes
        self._learned_ms: int | None = None  # the instance whose label came last
        self._kept = [0.0, 0.0, 0.0]
        """Labels that could have been the same as the one before: how many, how many more than by
        chance were, and how many more could have been."""
        self._seen = 0
        self._time_ms = 0
        self._rhythm_ms = 0.0
        self._belief = [1 / classes] * classes
        self._mean = [0.0] * classes
        self._off = [0.0] * classes  # the last logits, less their mean
        self._before = [0.0] * classes  # those before
        self._followed = 0
        self._spread = self._follows = self._lingers = 0.0
        """Mean squares: of the logits, of neighbours together, and of next neighbours."""
        self._labels = self._since = 0
        """Labels so far, and readings since the last one came."""

    # -- predicting ----------------------------------------------------------------------------

    def evidence(self, scores: Floats, predictor: PredictorName, time_ms: int) -> Evidence:
        """All that is known of an instance. Changes nothing."""
        sharpness = self._sharpness.get(predictor)
        t = sharpness.t if sharpness else Sharpness().t
        middle = added(scores) / len(scores)
        now = [t * (score - middle) for score in scores]
        order = self._order()
        label, age_ms, stays = self._label, abs(time_ms - self._label_ms), 0.0
        if label >= 0:
            trusted = self._trusted()
            stays = trusted * self._still(label, age_ms) if trusted else 0.0
        seen = Evidence.of(
            predictor,
            scores=scores,
            now=now,
            past=self._past(time_ms),
            then=self._then,
            said=now,
            noise=order * self._noise(),
            label=label,
            age_ms=age_ms,
            stays=stays,
            time_ms=time_ms,
        )
        seen.numbers[-5 - len(now) : -5] = array("d", self._found_by(self._leader(seen), seen))
        return seen

    def answer(
        self, scores: Floats | NDArray[np.floating[Any]], predictor: PredictorName, time_ms: int
    ) -> tuple[Evidence, list[float]]:
        """All that is known of an instance, and how probable each class is. Changes nothing."""
        seen = self.evidence([float(score) for score in scores], predictor, time_ms)
        return seen, self.probabilities(seen)

    def probabilities(self, seen: Evidence) -> list[float]:
        """How probable each class is: what was found, as surely as such findings were right."""
        return self._record.corrected(seen.said.tolist())

    def _leader(self, seen: Evidence) -> int:
        """Who is asked: all evidence together, unless a part of it has been right more often."""
        leader, most = ALL, 0.0
        for voice in (MODEL, LABEL) if seen.label_speaks else (MODEL,):
            won, lost = self._against[voice]
            if won - lost > most and is_ahead(won, lost):
                leader, most = voice, won - lost
        return leader

    def _found_by(self, voice: int, seen: Evidence) -> list[float]:
        """The probabilities by one of the voices."""
        if voice == ALL:
            return likely_list(self._logits(seen))
        if voice == MODEL:
            return likely_list(list(seen.now))
        total = added(self._frequency)
        found = [(1 - seen.stays) * each / total for each in self._frequency]
        found[seen.label] += seen.stays
        return found

    def _logits(self, seen: Evidence) -> list[float]:
        scores, past, label, kept, then = self.weights
        mine, before, there = scores + kept * seen.stays, past * seen.noise, then * seen.stays
        logits = [
            mine * a + before * b + there * c
            for a, b, c in zip(seen.now, seen.past, seen.then, strict=True)
        ]
        if seen.label >= 0:
            logits[seen.label] += label * self._odds(seen)
        return logits

    def _odds(self, seen: Evidence) -> float:
        """The logarithm of how much likelier the label makes its own class than the others."""
        stays, share = seen.stays, self._frequency[seen.label] / added(self._frequency)
        return logarithm((1 - stays + stays / share) / max(1 - stays, DOUBTED))

    def _still(self, label: int, age_ms: int) -> float:
        """How much more often than by chance labels of this class have held at about this age.

        From the record, and not from a law: a room is left for two minutes, or for the night.
        """
        share, place = self._frequency[label] / added(self._frequency), octave(age_ms)
        count, held = BY_CHANCE, BY_CHANCE * share
        first = max(0, int(place) - 3)
        for knot, (looks, kept) in enumerate(self._held[label][first : int(place) + 5], first):
            near = 1 / (1 + AKIN * (knot - place) * (knot - place))
            count += near * near * looks
            held += near * near * kept
        return max(0.0, (held / count - share) / (1 - share)) if share < 1 else 0.0

    # -- readings ------------------------------------------------------------------------------

    def go_on(self, seen: Evidence) -> None:
        """Count this instance among the last ones from now on."""
        if self._seen:
            passed = min(abs(seen.time_ms - self._time_ms), 4 * self._rhythm_ms + 1)
            rate = max(RHYTHM, 1 / self._seen)
            self._rhythm_ms += rate * (passed - self._rhythm_ms)
        self._seen += 1
        self._time_ms = seen.time_ms
        self._belief = likely_list([a + b for a, b in zip(seen.now, seen.past, strict=True)])
        if seen.predictor == PredictorName.FREQUENT:  # it has not looked at the reading
            return
        rate = max(FOLLOWED, 1 / (self._followed + 1))
        level = max(rate, self._shift())
        mean = [m + level * (a - m) for m, a in zip(self._mean, seen.now, strict=True)]
        off = [a - m for m, a in zip(mean, seen.now, strict=True)]
        self._spread += rate * (added([a * a for a in off]) - self._spread)
        next_to = added([a * b for a, b in zip(off, self._off, strict=True)])
        self._follows += rate * (next_to - self._follows)
        after_next = added([a * b for a, b in zip(off, self._before, strict=True)])
        self._lingers += rate * (after_next - self._lingers)
        self._mean, self._before, self._off = mean, self._off, off
        self._followed += 1
        self._since += 1

    def _shift(self) -> float:
        """How fast the mean of the logits has to follow what the last label has done to it.

        A label moves the scores of all readings alike, by much while its class has few. Measured
        from where they were before, neighbours seem to go together, and any stream has an order.
        The cube lets go soon, since in a true order the mean must not follow what lasts.
        """
        classes = len(self._mean)
        few = classes / (self._labels + classes)
        return min(few * few * few, 1 / (self._since + 1))

    def _past(self, time_ms: int) -> list[float]:
        """The belief of the last readings as logits, less what is forgotten by now."""
        classes = len(self._belief)
        passed = abs(time_ms - self._time_ms) / self._rhythm_ms if self._rhythm_ms else 1.0
        kept = 1 / (1 + FORGOTTEN * passed)
        even = (1 - kept) / classes
        logits = [logarithm(kept * each + even) for each in self._belief]
        middle = added(logits) / classes
        return [each - middle for each in logits]

    @property
    def sees_order(self) -> bool:
        """Whether readings follow each other in the order of time, by their scores."""
        return self._order() >= IN_ORDER

    def _order(self) -> float:
        return order_of_scores(self._followed, self._spread, self._follows)

    def _noise(self) -> float:
        """From 0, what the scores do is the world's doing, to 1, they are worth smoothing.

        Noise differs from reading to reading, and a state that lasts is forgotten by the same share
        at each step: correlated ρ with the next reading and ρ' with the one after, scores have a
        share of 1 − ρ²/ρ' of noise. Where they jump and stay, as a lamp does, that is 0.
        """
        if self._spread < 1e-12 or self._lingers <= 0:
            return 0.0
        noise = 1 - self._follows * self._follows / (self._lingers * self._spread)
        return min(1.0, max(0.0, (noise - QUIET) / (NOISY - QUIET)))

    def _labels_order(self) -> float:
        """The same by what labels alone say, two standard errors on the safe side."""
        count, more, could = self._kept
        if more <= 0 or could <= 0:
            return 0.0
        return min(1.0, max(0.0, more / could - 2 / math.sqrt(count)))

    def _trusted(self) -> float:
        """How far there is an order at all, by scores or by labels."""
        return max(self._order(), self._labels_order())

    # -- labels --------------------------------------------------------------------------------

    def learn(self, seen: Evidence, truth: int) -> None:
        """The class of an instance is known, now or late."""
        new = self._newness(seen)
        counts = 1 - self._trusted() * (1 - new)  # without an order no mistake explains the next
        self._record.take_down(seen.said.tolist(), truth, counts)
        together = self._judge(seen, truth, new)
        self._move_weights(seen, truth, new, together)
        self._sharpness.setdefault(seen.predictor, Sharpness()).learn(seen.scores, truth, counts)
        if seen.label >= 0:
            self._count_stay(seen, truth, new)
        self._frequency = [FREQUENCY_FADING * each for each in self._frequency]
        self._frequency[truth] += 1
        self._labels, self._since = self._labels + 1, 0
        if self._label < 0 or abs(self._time_ms - seen.time_ms) <= abs(
            self._time_ms - self._label_ms
        ):  # nearer to now, whatever a clock that was wrong has called the other one
            self._know(truth, seen)

    def _know(self, label: int, seen: Evidence) -> None:
        """Take it as the last known label, given for an instance with this evidence."""
        self._label, self._label_ms = label, seen.time_ms
        wrong = 1 - likely_list(list(seen.now))[label]
        self._then = [wrong * each for each in seen.now]

    @property
    def time_ms(self) -> int:
        """Of the last instance."""
        return self._time_ms

    def take_back(
        self, seen: Evidence, truth: int, since: int, before: tuple[int, Evidence] | None
    ) -> None:
        """A label, `since` labels ago, was a mistake; if it is the last known one, go by `before`.

        What it has moved a step, the weights and the records, stays moved.
        """
        left = self._frequency[truth] - FREQUENCY_FADING**since
        self._frequency[truth] = max(left, DOUBTED)
        if (self._label, self._label_ms) != (truth, seen.time_ms):
            return
        if before is None:
            self._label = -1
        else:
            self._know(*before)

    def _newness(self, seen: Evidence) -> float:
        """The share of the time since its evidence that no label before has looked back on."""
        before, self._learned_ms = self._learned_ms, seen.time_ms
        if before is None or seen.label < 0 or not seen.age_ms:
            return 1.0
        return min(1.0, abs(seen.time_ms - before) / seen.age_ms)

    def _judge(self, seen: Evidence, truth: int, new: float) -> list[float]:
        """Take down which voices are right. Returns what all evidence together says."""
        right, found = [], []
        for voice in (MODEL, LABEL, ALL) if seen.label_speaks else (MODEL, ALL):
            found = self._found_by(voice, seen)
            right.append(found.index(max(found)) == truth)
        for voice, hit in zip((MODEL, LABEL), right[:-1], strict=False):
            won, lost = self._against[voice]
            won += new * (hit and not right[-1])
            lost += new * (right[-1] and not hit)
            self._against[voice] = [LASTING * won, LASTING * lost]
        return found

    def _move_weights(
        self, seen: Evidence, truth: int, new: float, together: Sequence[float]
    ) -> None:
        """A step down the slope of the log-loss, each weight with a step size of its own."""
        off = [-each for each in together]
        off[truth] += 1
        mine = added([a * b for a, b in zip(seen.now, off, strict=True)])
        past = added([a * b for a, b in zip(seen.past, off, strict=True)])
        there = added([a * b for a, b in zip(seen.then, off, strict=True)])
        label = off[seen.label] * self._odds(seen) if seen.label >= 0 else 0.0
        slopes = mine, seen.noise * past, label, seen.stays * mine, seen.stays * there
        for place, slope in enumerate(slopes):
            step = new * slope
            self._squares[place] += step * slope
            moved = self.weights[place] + STEP * step / (1 + math.sqrt(self._squares[place]))
            self.weights[place] = min(WEIGHT_MAX, max(-WEIGHT_MAX, moved))

    def _count_stay(self, seen: Evidence, truth: int, new: float) -> None:
        """One more look back at a label, shared by the two ages around its own."""
        held, place = truth == seen.label, octave(seen.age_ms)
        low = min(int(place), AGES - 2)
        faded, share = 1 - (1 - HELD) * new, place - low
        ages = self._held[seen.label] = [[faded * n, faded * h] for n, h in self._held[seen.label]]
        for age, weight in ((ages[low], new * (1 - share)), (ages[low + 1], new * share)):
            age[0] += weight
            age[1] += weight * held
        expected = self._frequency[seen.label] / added(self._frequency)
        count, more, could = self._kept
        self._kept = [count + new, more + new * (held - expected), could + new * (1 - expected)]

    # -- changes, and saving -------------------------------------------------------------------

    def renew(self, predictor: PredictorName) -> None:
        """Another model answers under this name: as sharp as the last one, until labels speak."""
        if predictor in self._sharpness:
            self._sharpness[predictor] = Sharpness(self._sharpness[predictor].t)

    def with_classes(self, sources: Sequence[int | None]) -> None:
        """Let class k be the one that was `sources[k]`, or a new one."""
        self._frequency = shifted(self._frequency, sources, 1.0)
        self._held = [
            [[0.0, 0.0] for _ in range(AGES)] if k is None else self._held[k] for k in sources
        ]
        places = {source: place for place, source in enumerate(sources)}
        self._label = places.get(self._label, -1) if self._label >= 0 else -1
        self._then = shifted(self._then, sources)
        belief = shifted(self._belief, sources)
        total = added(belief)
        self._belief = [b / total if total else 1 / len(belief) for b in belief]
        self._mean, self._off = shifted(self._mean, sources), shifted(self._off, sources)
        self._before = shifted(self._before, sources)

    @property
    def nbytes(self) -> int:
        """Bytes of state, as numbers of eight; what waits for late labels is with the instances."""
        classes = len(self._frequency)
        kept = (
            len(self.weights)
            + len(self._squares)
            + 2 * len(self._record.knots)
            + 4
            + len(self._kept)
        )
        return 8 * (kept + classes * (2 * AGES + 6) + 2 * len(self._sharpness) + 11)

    def state(self) -> dict[str, Any]:
        """Plain values, for `restore`."""
        return {
            "weights": [self.weights, self._squares],
            "sharpness": {name: each.state() for name, each in self._sharpness.items()},
            "frequency": self._frequency,
            "held": self._held,
            "record": self._record.knots,
            "against": self._against,
            "label": [self._label, self._label_ms, self._then, self._learned_ms],
            "kept": self._kept,
            "readings": [self._seen, self._time_ms, self._rhythm_ms],
            "logits": [self._belief, self._mean, self._off, self._before],
            "order": [self._followed, self._spread, self._follows, self._lingers],
            "labels": [self._labels, self._since],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Be what `state` described, to the bit."""
        self.weights, self._squares = (list(each) for each in saved["weights"])
        self._sharpness = {
            PredictorName(name): Sharpness(*each) for name, each in saved["sharpness"].items()
        }
        self._frequency = list(saved["frequency"])
        self._held = [[list(age) for age in each] for each in saved["held"]]
        self._record = Record(saved["record"])
        self._against = [list(each) for each in saved["against"]]
        self._label, self._label_ms, then, self._learned_ms = saved["label"]
        self._then = list(then)
        self._kept = list(saved["kept"])
        self._seen, self._time_ms, self._rhythm_ms = saved["readings"]
        self._belief, self._mean, self._off, self._before = map(list, saved["logits"])
        self._followed, self._spread, self._follows, self._lingers = saved["order"]
        self._labels, self._since = labels_of(saved)


class Record:
    """How often what was said as surely as this was right: confidence, from labels alone.

    >>> record = Record()
    >>> for truth in (0, 0, 1) * 300:  # said with 0.9, and right in two of three cases
    ...     record.take_down([0.9, 0.1], truth)
    >>> [round(each, 2) for each in record.corrected([0.9, 0.1])]
    [0.68, 0.32]
    """

    def __init__(self, knots: Sequence[Sequence[float]] | None = None) -> None:
        self.knots = [list(knot) for knot in knots or [[0.0, 0.0]] * len(SURE)]
        """At each knot of confidence: labels, and those that were right; faded."""

    def corrected(self, found: list[float]) -> list[float]:
        """The probabilities, as surely as such ones were right. They choose the class."""
        top = max(found)
        sure, winner = self._confidence(top), found.index(top)
        rest = (1 - sure) / (1 - top) if top < 1 else 0.0
        told = [rest * each for each in found]
        told[winner] = sure if top < 1 else 1.0
        return told if max(told) == told[winner] else found

    def _confidence(self, sure: float) -> float:
        """What was right so far of what was as sure; the value itself while little is known."""
        place, share = between(sure)
        found = 0.0
        for knot, weight in ((place - 1, 1 - share), (place, share)):
            count, right = self.knots[knot]
            found += weight * (right + BELIEVED * sure) / (count + BELIEVED)
        return found

    def take_down(self, found: Floats, truth: int, counts: float = 1.0) -> None:
        """One more label, or a part of one, shared by the two knots around the confidence."""
        sure = max(found)
        right = found.index(sure) == truth
        faded = 1 - (1 - FADING) * counts
        self.knots = [[faded * count, faded * hits] for count, hits in self.knots]
        place, share = between(sure)
        shares = counts * (1 - share), counts * share
        for near, weight in zip(self.knots[place - 1 : place + 1], shares, strict=True):
            near[0] += weight
            near[1] += weight * right


def between(sure: float) -> tuple[int, float]:
    """The knot above a confidence, and how far from the one below it lies.

    >>> between(0.35)[0], round(between(0.35)[1], 6)
    (2, 0.5)
    """
    place = min(bisect_right(SURE, sure), len(SURE) - 1)
    return place, (sure - SURE[place - 1]) / (SURE[place] - SURE[place - 1])


def octave(age_ms: int) -> float:
    """Where an age lies among the ages of the record: about its logarithm to the base of 2.

    >>> octave(0), octave(512), octave(768), octave(1024), octave(10**12)
    (0.0, 0.0, 0.5, 1.0, 23.0)
    """
    part, power = math.frexp(max(age_ms, AGE_MS) / AGE_MS)
    return min(AGES - 1.0, power + 2 * part - 2)


def labels_of(saved: Mapping[str, Any]) -> Sequence[int]:
    """Labels that a saved state has had, and readings since; an older one did not count them."""
    return saved.get("labels") or (0, saved["order"][0])


def order_of_scores(followed: float, spread: float, follows: float) -> float:
    """From 0, neighbouring readings have nothing in common, to 1."""
    if spread < 1e-12:
        return 0.0
    known = followed / (followed + FEW)
    return min(1.0, max(0.0, (known * follows / spread - CHANCE) / (CLEAR - CHANCE)))


def is_ahead(won: float, lost: float) -> bool:
    """Whether one voice was right where another was wrong by more than chance makes likely."""
    return won - lost > LEAD * (1 + math.sqrt(won + lost))


def shifted(values: Floats, sources: Sequence[int | None], new: float = 0.0) -> list[float]:
    """Values by class, where class k is the one that was `sources[k]`, or a new one."""
    return [new if source is None else values[source] for source in sources]


ODD = tuple(1 / odd for odd in range(17, 0, -2))


def logarithm(x: float) -> float:
    """The natural logarithm from plain arithmetic: the same bits with every C library.

    >>> all(abs(logarithm(x) - math.log(x)) < 1e-12 for x in (1e-3, 0.5, 1.0, 7.0, 1e6))
    True
    """
    part, power = math.frexp(x)
    ratio = (part - 0.75) / (part + 0.75)  # within a fifth of 0: nine odd powers are enough
    square, found = ratio * ratio, 0.0
    for weight in ODD:
        found = found * square + weight
    return 2 * ratio * found + power * 0.6931471805599453 - 0.28768207245178096
