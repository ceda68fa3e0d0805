"""Comfortable is neither cold nor warm: give a sensor knots, and it need not be a straight line.

It prints how often a straight line is right about comfort, and how often eight hats are.

    1 column: 73% right
    8 columns: 98% right
"""

import random

from edge_opid import Layout, Sensor, WoodburyLearner

straight = Sensor("temp", 21, 3)
bent = Sensor("temp", 21, 3, knots=(-8, -2, -1, -0.3, 0.3, 1, 2, 8))
for sensor in (straight, bent):
    layout, chance, right = Layout([sensor]), random.Random(3), 0
    learner = WoodburyLearner(0, layout.width, classes=2)
    for _ in range(1000):
        temp = chance.uniform(12, 30)
        comfortable = int(19 < temp < 24)
        scores = learner.score_then_learn(layout.encode({"temp": temp}), comfortable)
        right += int(scores.all_sensors.argmax() == comfortable)
    print(f"{sensor.columns} column{'s' * (sensor.columns > 1)}: {right / 1000:.0%} right")
