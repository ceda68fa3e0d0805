"""Many nodes know more than one: add up their summaries, whatever the order of their columns.

It prints whose readings are included, who lacks a sensor, and how often one node and the group are
right.

    ('attic',) {} 65% right
    ('attic', 'cellar') {'shed': ('co2',)} 71% right
"""

import numpy as np

from edge_opid import GramLearner
from gateway.fitting.pooling import Member, pool

chance = np.random.default_rng(9)
y = chance.integers(0, 2, 1100)
columns = {role: y - 0.5 + chance.normal(0, 1.2, 1100) for role in ("temp", "co2", "noise")}
columns["bias"] = np.ones(1100)
nodes = {"attic": "temp co2 noise bias", "cellar": "bias noise co2 temp", "shed": "temp noise bias"}
members = []
for place, (node, roles) in enumerate(nodes.items()):
    rows = slice(20 * place, 20 * place + 20)  # a node has few labels
    learner = GramLearner(vanishing=0, surviving=len(roles.split()), classes=2)
    learner.learn_many(np.column_stack([columns[r][rows] for r in roles.split()]), y[rows])
    members.append(Member(node, tuple(roles.split()), learner.summary()))

survivors = ["temp", "noise", "bias"]
X = np.column_stack([columns[role] for role in survivors])[100:]
for some in (members[:1], members):
    found = pool(some, survivors, classes=2, vanishing=["co2"])
    W_s = found.survivors_weights(lam=1.0, rho=1.0)
    print(found.nodes, found.lacking, f"{np.mean((X @ W_s).argmax(1) == y[100:]):.0%} right")
