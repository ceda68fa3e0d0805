"""You move house, sensors and all: keep what was learned, but forget how certain it was.

It prints how often it is right in the first 100 readings of the new house, for both.

    carry 1: 95% right
    carry 0: 97% right
"""

import random

from edge_opid import Classifier, Sensor

for carry in (1.0, 0.0):
    classifier, chance, right = Classifier(), random.Random(11), 0
    for people in [0, 1] * 1000:
        reading = {"co2": chance.gauss(people, 0.3), "temp": chance.gauss(people, 0.3)}
        classifier.learn_one(reading, people)
    classifier.replace("co2", Sensor("humidity"), carry=carry)
    for people in [0, 1] * 50:
        reading = {"humidity": chance.gauss(people, 0.3), "temp": chance.gauss(people - 1, 0.3)}
        right += classifier.predict_one(reading) == people  # the new house is colder
        classifier.learn_one(reading, people)
    print(f"carry {carry:g}: {right}% right")
