"""Save what was learned in one file, and continue from it as if nothing had happened.

It prints what was loaded, and whether it gives exactly the same answers as before.

    <Classifier: 2 sensors, 2 classes, 15 readings, 0.6 kB>
    the same bits: True
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from edge_opid import Classifier

classifier = Classifier()
for co2, temp, room in [(420, 19, "empty"), (600, 23, "full"), (410, 18, "empty")] * 5:
    classifier.learn_one({"co2": co2, "temp": temp}, room)

with TemporaryDirectory() as folder:
    classifier.save(Path(folder) / "room.opid")
    loaded = Classifier.load(Path(folder) / "room.opid")
print(loaded)
reading = {"co2": 500, "temp": 21}
print("the same bits:", loaded.predict_proba_one(reading) == classifier.predict_proba_one(reading))
