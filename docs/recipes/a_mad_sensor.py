"""One sensor goes mad: leave its value out, and believe the others.

It prints who is not believed, what the answer is without it, and what a strict layout says.

    not believed: ('temp',)
    occupied: True
    sensor 'temp' is 85: 13.0 scales from its reference 20, gate 8
"""

from edge_opid import Layout, ReadingError, Sensor, WoodburyLearner

layout = Layout([Sensor("temp", 20, 5), Sensor("co2", 420, 50)])
learner = WoodburyLearner(0, layout.width, classes=2)
for co2, temp, occupied in [(420, 19, 0), (600, 23, 1), (410, 18, 0), (550, 22, 1)] * 10:
    learner.learn_one(layout.encode({"co2": co2, "temp": temp}), occupied)

mad = {"temp": 85.0, "co2": 590.0}  # what a DS18B20 says when its power fails
print("not believed:", layout.gated(mad))
print("occupied:", learner.predict_one(layout.encode(mad, drop_gated=True)).argmax() == 1)
try:
    layout.encode(mad)
except ReadingError as error:
    print(error)
