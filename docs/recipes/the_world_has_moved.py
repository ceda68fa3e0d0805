"""A node moves house and gets a new sensor: keep what it knows, and forget how sure it was.

It prints how often it is right in the first 100 readings, with all the evidence and with none.

    carry 1: 94% right
    carry 0: 99% right
"""

import numpy as np

from edge_opid import Layout, WoodburyLearner

before, after = Layout(["co2", "temp"]), Layout(["humidity", "temp"])
old, chance = WoodburyLearner(0, before.width, classes=2), np.random.default_rng(11)
for occupied in [0, 1] * 1000:
    temp, co2 = chance.normal(occupied, 0.3, 2)
    old.learn_one(before.encode({"temp": temp, "co2": co2}), occupied)

for carry in (1.0, 0.0):
    learner = before.change_to(after).follow(old, carry)
    chance, right = np.random.default_rng(12), 0
    for occupied in [0, 1] * 50:
        temp, humidity = chance.normal(occupied, 0.3, 2) - (1, 0)  # the new house is colder
        x = after.encode({"temp": temp, "humidity": humidity})
        right += int(learner.score_then_learn(x, occupied).all_sensors.argmax() == occupied)
    print(f"carry {carry:g}: {right}% right")
