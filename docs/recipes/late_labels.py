"""Labels arrive an hour late, from a person: keep the last readings, and learn when told.

It prints what the classifier makes of 58 µg/m³ before and after four late labels, and what became
of a fifth. A node does the same by itself, for labels sent by time or by the reading's number.

    58 µg/m³ is None
    nothing was read at 9:30
    58 µg/m³ is smoke
"""

from edge_opid import Classifier

classifier = Classifier()
recent = {f"9:0{minute}": {"pm25": pm25} for minute, pm25 in enumerate([12, 61, 14, 58])}
print("58 µg/m³ is", classifier.predict_one(recent["9:03"]))

told = {"9:00": "clean", "9:01": "smoke", "9:02": "clean", "9:03": "smoke", "9:30": "smoke"}
for time, label in told.items():
    if time in recent:
        classifier.learn_one(recent.pop(time), label)  # each of them once
    else:
        print("nothing was read at", time)
print("58 µg/m³ is", classifier.predict_one({"pm25": 58}))
