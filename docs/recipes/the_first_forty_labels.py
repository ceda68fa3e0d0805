"""A new sensor has joined: forty labelled readings may be enough to use it.

It prints how often the surviving sensors are right without it and with it. If forty labels cannot
tell whether it helps, the fit uses the survivors alone.

    survivors alone: 77% right
    with the new sensor: 93% right
    a node is sent one matrix: (5, 2)
"""

import numpy as np

from edge_opid import WoodburyLearner
from gateway.estage import LINEAR, column_weights, fit_best

chance = np.random.default_rng(9)
y = chance.integers(0, 2, 1540)
Xs = np.column_stack([y[:, None] - 0.5 + chance.normal(0, 1.2, (1540, 3)), np.ones(1540)])
Xa = y[:, None] - 0.5 + chance.normal(0, 0.35, (1540, 1))
learner = WoodburyLearner(vanishing=0, surviving=4, classes=2)
learner.learn_many(Xs[:1000], y[:1000])  # the C-stage: the new sensor was not there yet
W_s = learner.weights()[1]

batch, later = slice(1000, 1040), slice(1040, None)
best = fit_best(Xs[batch] @ W_s, Xa[batch], y[batch], classes=2, candidates=LINEAR)
small = column_weights(best.model, W_s)
alone, fitted = Xs[later] @ W_s, small.scores(Xs[later], Xa[later])
print(f"survivors alone: {np.mean(alone.argmax(1) == y[later]):.0%} right")
print(f"with the new sensor: {np.mean(fitted.argmax(1) == y[later]):.0%} right")
print("a node is sent one matrix:", small.matrix(bias_column=3).shape)
