"""Nobody knows what a sensor's values mean: let the first readings say it.

It prints, each time the layout is made anew, what the warm-up makes of a sensor in kilo-ohm.

    8 readings: gas 110 ± 15
    16 readings: gas 109 ± 16
    32 readings: gas 115 ± 20
    64 readings: gas 120 ± 21
    128 readings: gas 120 ± 21
    200 readings: gas 120 ± 21
"""

import random

from edge_opid import WarmUp, WoodburyLearner

chance = random.Random(4)
warmup = WarmUp(["gas", "temp"], readings=200)
while not warmup.full:
    label = chance.randrange(2)
    warmup.add({"gas": chance.gauss(140 - 40 * label, 12), "temp": chance.gauss(19, 2)}, label)
    if warmup.due:  # at 8, 16, 32 … and 200 readings
        layout = warmup.layout()
        learner = WoodburyLearner(0, layout.width, classes=2)
        for values, known in warmup.rows():
            learner.learn_one(layout.encode(values), known)
        gas = layout.sensors[0]
        print(f"{learner.readings} readings: gas {gas.reference:.0f} ± {gas.scale:.0f}")
