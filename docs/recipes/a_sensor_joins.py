"""A sensor dies, a new one is mounted, and nothing that was learned of the others is lost.

It prints the columns before and after, what changed, and that the survivor still knows its part.

    ('co2', 'temp', 'bias') -> ('humidity', 'temp', 'bias')
    kept ('temp',), retired ('co2',), deployed ('humidity',)
    500 readings remembered; occupied at 23 degrees: True
"""

import numpy as np

from edge_opid import Layout, Sensor, WoodburyLearner

chance = np.random.default_rng(3)
before = Layout([Sensor("temp", 20, 5), Sensor("co2", 420, 50)], vanishing=["co2"])
learner = WoodburyLearner(before.vanishing_columns, before.surviving_columns, classes=2)
for _ in range(500):
    occupied = int(chance.integers(2))
    values = {"co2": 420 + 100 * occupied, "temp": chance.normal(20 + 2 * occupied, 1)}
    learner.learn_one(before.encode(values), occupied)

after = before.retire("co2").deploy(Sensor("humidity", 45, 10))
change = before.change_to(after)
learner = change.follow(learner)
warm = learner.predict_one(after.encode({"temp": 23, "humidity": 45}))
print(before.columns, "->", after.columns)
print(f"kept {change.kept}, retired {change.retired}, deployed {change.deployed}")
print(f"{learner.readings} readings remembered; occupied at 23 degrees: {warm.argmax() == 1}")
