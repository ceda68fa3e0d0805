"""Two rooms learn separately, and together know what one learner would that had seen it all.

It prints what the kitchen knows before and after merging what the bathroom has learned, and how
often it is right about both rooms.

    ['clean', 'cooking'] 66% right
    ['clean', 'cooking', 'shower'] 99% right
"""

import random

from edge_opid import Classifier

chance = random.Random(1)
air = {"clean": (12, 45), "cooking": (60, 55), "shower": (15, 85)}  # fine dust, humidity


def sniff(label):
    """A reading of this kind of air."""
    dust, humidity = air[label]
    return {"pm25": chance.gauss(dust, 9), "humidity": chance.gauss(humidity, 9)}


kitchen, bathroom = Classifier(), Classifier()
for _ in range(100):
    for label in ("clean", "cooking"):
        kitchen.learn_one(sniff(label), label)
    for label in ("clean", "shower"):
        bathroom.learn_one(sniff(label), label)
for _ in ("alone", "together"):
    hits = sum(kitchen.predict_one(sniff(label)) == label for label in list(air) * 300)
    print(kitchen.classes, f"{hits / 900:.0%} right")
    kitchen.merge(bathroom)  # sums, and no reading
