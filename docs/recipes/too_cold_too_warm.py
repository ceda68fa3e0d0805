"""Comfortable is neither cold nor warm: with knots, a sensor's effect can be a curve.

It prints how often a straight line is right about comfort, and how often a curve is.

    knots=1: 73% right
    knots=8: 95% right
"""

import random

from edge_opid import Classifier

for knots in (1, 8):
    classifier, chance, right = Classifier(knots=knots), random.Random(3), 0
    for _ in range(1000):
        temp = chance.uniform(12, 30)
        feeling = "comfortable" if 19 < temp < 24 else "too cold or too warm"
        right += classifier.predict_one({"temp": temp}) == feeling
        classifier.learn_one({"temp": temp}, feeling)
    print(f"knots={knots}: {right / 1000:.0%} right")
