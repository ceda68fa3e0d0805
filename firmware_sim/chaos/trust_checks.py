"""Whether a node that nobody lies for has been turned round by one that somebody lies for.

What it serves is asked about instances whose truth is known, and so is what it has learned itself.
A pushed model may be worse than its own; it may not be wrong nearly always where its own is right.
A node that has hardly seen a label so far cannot tell, and is not held to it.
"""

from __future__ import annotations

from edge_opid.node.scoreboard import TRIAL
from edge_opid.node.state import NodeState
from edge_opid.wire import InstanceId
from firmware_sim.chaos.promises import BrokenPromise
from firmware_sim.chaos.story import CLASSES, Story
from firmware_sim.simulated.clock import dice

ASKED = 45
FEW, MANY = ASKED // 5, ASKED // 2  # a guess is right in a third
NUMBER = InstanceId("trial", 0, 1)


def check_not_turned(story: Story, name: str, state: NodeState) -> None:
    """Raise `BrokenPromise` if it serves what is turned round."""
    labelled = sum(1 for _ in state.trial.rows())
    if state.warmup is not None or not state.pushed_models or labelled < TRIAL:
        return
    chance = dice(story.seed, "trial", name)
    served = own = 0
    for _ in range(ASKED):
        truth = chance.randrange(len(CLASSES))
        sensors = {s: state.local_models.sensors[s].role for s in state.local_models.alive}
        values = {s: story.seen(role, truth, chance) for s, role in sensors.items()}
        served += state.predicted_unkept(values, NUMBER, 0).winner == truth
        scores = state.local_models.own(state.local_models.encode(values))
        own += int(scores.argmax()) == truth
    if served <= FEW and own >= MANY:
        what = f"{name} serves a model that is right in {served} of {ASKED}, its own in {own}"
        raise BrokenPromise("turned by a liar", what)
