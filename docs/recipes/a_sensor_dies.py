"""Learn from a stream, and go on when a sensor dies.

It prints how often the learner is right with both sensors, and with the one that survives.

    both sensors: 93% right
    CO2 has died: 85% right
"""

import numpy as np

from edge_opid import Layout, Sensor, WoodburyLearner

layout = Layout([Sensor("temp", 20, 5), Sensor("co2", 420, 100)], vanishing=["co2"])
learner = WoodburyLearner(layout.vanishing_columns, layout.surviving_columns, classes=2)
chance = np.random.default_rng(6)
hits = {"both sensors": 0, "CO2 has died": 0}
for minute in range(1000):
    occupied = int(chance.integers(2))
    co2, temp = chance.normal(420 + 200 * occupied, 70), chance.normal(20 + 2 * occupied, 1)
    if minute < 500:
        scores = learner.score_then_learn(layout.encode({"co2": co2, "temp": temp}), occupied)
        hits["both sensors"] += int(scores.all_sensors.argmax() == occupied)
    else:  # W^(s) has been learned all along
        survivors = layout.encode({"temp": temp})[layout.vanishing_columns :]
        hits["CO2 has died"] += int(learner.predict_survivors(survivors).argmax() == occupied)
for when, right in hits.items():
    print(f"{when}: {right / 500:.0%} right")
