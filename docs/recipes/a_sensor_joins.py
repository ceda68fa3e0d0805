"""A sensor dies, a new one is installed, and nothing learned with the others is lost.

It prints what the classifier knows, before and after, and what it says at 23 degrees.

    <Classifier: 2 sensors, 2 classes, 500 readings, 0.6 kB>
    <Classifier: 2 sensors, 2 classes, 500 readings, 0.7 kB>
    full
"""

import random

from edge_opid import Classifier, Sensor

classifier, chance = Classifier(), random.Random(3)
for people in [0, 1] * 250:
    reading = {"co2": 420 + 100 * people, "temp": chance.gauss(20 + 2 * people, 1)}
    classifier.learn_one(reading, ["empty", "full"][people])
print(classifier)

classifier.retire("co2")
classifier.deploy(Sensor("humidity", reference=45, scale=10))  # or just send it: it is measured
print(classifier)
print(classifier.predict_one({"temp": 23, "humidity": 45}))
