"""Nobody knows a sensor's usual values: let the first readings set its scale.

It prints the scale it finds for a sensor in kilo-ohms, and how often it was right so far.

    8 readings: gas 110 ± 15, 5 right
    16 readings: gas 109 ± 16, 13 right
    32 readings: gas 115 ± 20, 29 right
    64 readings: gas 120 ± 21, 58 right
    128 readings: gas 120 ± 21, 120 right
    200 readings: gas 120 ± 21, 186 right
"""

import random

from edge_opid import Classifier

classifier, chance, right = Classifier(), random.Random(4), 0
for number in range(1, 201):
    smoke = chance.randrange(2)
    reading = {"gas": chance.gauss(140 - 40 * smoke, 12), "temp": chance.gauss(19, 2)}
    right += classifier.predict_one(reading) == smoke
    classifier.learn_one(reading, smoke)
    if number in (8, 16, 32, 64, 128, 200):
        gas = classifier.layout.sensors[0]
        print(f"{number} readings: gas {gas.reference:.0f} ± {gas.scale:.0f}, {right} right")
