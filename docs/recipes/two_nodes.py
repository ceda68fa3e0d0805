"""Two nodes learn apart, and know together what one would know that had seen it all.

It prints how many readings each has, and how far the sum is from a learner of all of them.

    ?
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
print(f"north sends {parcel.readings} readings as {parcel.nbytes} bytes; south has {south.readings}")
south.merge(parcel)
apart = np.abs(south.weights()[0] - both.weights()[0]).max()
print(f"together {south.readings}; weights differ by less than 0.00001: {apart < 1e-5}")
