"""A node moves house with new sensors: keep what the old ones taught, not how sure it was.

It prints how often it is right in the first 100 readings, with all the evidence and with none.

    ?
"""

import numpy as np

from edge_opid import Layout, WoodburyLearner

chance = np.random.default_rng(11)
before, after = Layout(["co2", "temp"]), Layout(["humidity", "temp"])
old = WoodburyLearner(0, before.width, classes=2)
for _ in range(2000):
    occupied = int(chance.integers(2))
    temp, co2 = chance.normal(occupied, 0.3), chance.normal(occupied, 0.3)
    old.learn_one(before.encode({"temp": temp, "co2": co2}), occupied)

for carry in (1.0, 0.0):
    learner, right = before.change_to(after).follow(old, carry), 0
    for occupied in np.random.default_rng(12).integers(0, 2, 100):
        temp = chance.normal(occupied - 1, 0.3)  # the new house is colder
        x = after.encode({"temp": temp, "humidity": chance.normal(occupied, 0.3)})
        right += int(learner.score_then_learn(x, occupied).all_sensors.argmax() == occupied)
    print(f"carry = {carry:g}: {right}% right")
