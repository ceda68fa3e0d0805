"""A new sensor has joined: forty labelled readings are enough to use it.

It prints how often the survivors alone are right, how often the fit is, and what a node is sent.

    ?
"""

import numpy as np

from edge_opid import WoodburyLearner
from gateway.estage import LINEAR, fit_best, fold

chance = np.random.default_rng(8)
y = chance.integers(0, 3, 1540)
Xs = np.column_stack([np.eye(3)[y] + chance.normal(0, 0.6, (1540, 3)), np.ones(1540)])
Xa = (y == 2)[:, None] + chance.normal(0, 0.3, (1540, 1))  # the new sensor knows class 2 well
learner = WoodburyLearner(vanishing=0, surviving=4, classes=3)
learner.learn_many(Xs[:1000], y[:1000])  # the C-stage: there was no new sensor then
W_s = learner.weights()[1]

batch, later = slice(1000, 1040), slice(1040, None)
best = fit_best(Xs[batch] @ W_s, Xa[batch], y[batch], classes=3, candidates=LINEAR)
small = fold(best.model, W_s)
print(f"survivors alone: {np.mean((Xs[later] @ W_s).argmax(1) == y[later]):.0%} right")
scores = small.scores(Xs[later], Xa[later])
print(f"with the new sensor: {np.mean(scores.argmax(1) == y[later]):.0%} right")
print("a node is sent one matrix:", small.matrix(bias_column=3).shape)
