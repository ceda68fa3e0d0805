"""Two nodes learn apart, and know together what one would know that had seen it all.

It prints what travels, and whether the sum equals a learner that has seen all readings.

    north sends 100 readings as 72 bytes
    together they have 600; equal to five digits: True
"""

import numpy as np

from edge_opid import WoodburyLearner

chance = np.random.default_rng(6)
X = chance.normal(size=(600, 4))
y = (X[:, 0] - X[:, 2] > 0).astype(int)
north, south, both = (WoodburyLearner(vanishing=1, surviving=3, classes=2) for _ in range(3))
north.learn_many(X[:100], y[:100])
south.learn_many(X[100:], y[100:])
both.learn_many(X, y)

parcel = north.summary()  # what travels: sums, and no reading
print(f"north sends {parcel.readings} readings as {parcel.nbytes} bytes")
south.merge(parcel)
apart = np.abs(south.weights()[0] - both.weights()[0]).max()
print(f"together they have {south.readings}; equal to five digits: {apart < 1e-5}")
