"""One sensor sends nonsense: leave it out, and trust the others.

It prints which sensor is not believed, and the answer with its nonsense and without.

    not believed: ('temp',)
    with it: empty
    without: full
"""

from edge_opid import Classifier, Sensor

classifier = Classifier([Sensor("temp", 20, 5), Sensor("co2", 420, 50)])
for co2, temp, room in [(420, 19, "empty"), (600, 23, "full"), (410, 18, "empty")] * 10:
    classifier.learn_one({"co2": co2, "temp": temp}, room)

mad = {"temp": -127.0, "co2": 590.0}  # what a DS18B20 seems to say when its wire is cut
print("not believed:", classifier.layout.gated(mad))
print("with it:", classifier.predict_one(mad))
sane = {name: v for name, v in mad.items() if name not in classifier.layout.gated(mad)}
print("without:", classifier.predict_one(sane))
