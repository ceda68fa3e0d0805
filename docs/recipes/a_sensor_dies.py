"""Learn from a stream, and carry on when a sensor dies.

It prints how often the classifier is right with both sensors, and after one has died.

    both sensors: 97% right
    CO2 has died: 85% right
"""

import random

from edge_opid import Classifier

classifier, chance = Classifier(), random.Random(6)
right = {"both sensors": 0, "CO2 has died": 0}
for minute in range(1000):
    room, people = chance.choice([("empty", 0), ("full", 1)])
    reading = {
        "co2": chance.gauss(420 + 200 * people, 70),
        "temp": chance.gauss(20 + 2 * people, 1),
    }
    if minute >= 500:
        del reading["co2"]  # that is all: a sensor that is not there is not in the reading
    when = "CO2 has died" if minute >= 500 else "both sensors"
    right[when] += classifier.predict_one(reading) == room
    classifier.learn_one(reading, room)
for when, hits in right.items():
    print(f"{when}: {hits / 500:.0%} right")
