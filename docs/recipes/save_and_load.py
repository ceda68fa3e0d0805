"""Keep what was learned in one file, and go on from it as if nothing had happened.

It prints what was loaded, and whether it answers to the bit as before.

    4 readings, 368 bytes of state
    the same bits: True
"""

import json
from tempfile import TemporaryFile

import numpy as np

from edge_opid import Layout, Sensor, WoodburyLearner

layout = Layout([Sensor("temp", 20, 5), Sensor("co2", 420, 50)], vanishing=["co2"])
learner = WoodburyLearner(layout.vanishing_columns, layout.surviving_columns, classes=2)
for co2, temp, occupied in [(420, 19, 0), (600, 23, 1), (410, 18, 0), (550, 22, 1)]:
    learner.learn_one(layout.encode({"co2": co2, "temp": temp}), occupied)

with TemporaryFile() as file:
    state = learner.state()
    plain = json.dumps({"layout": layout.to_dict(), "settings": state.pop("settings")})
    np.savez(file, plain=plain, **state)
    file.seek(0)
    saved = {name: array if array.ndim else array.item() for name, array in np.load(file).items()}
plain = json.loads(saved.pop("plain"))
loaded = WoodburyLearner.from_state({"settings": plain["settings"], **saved})
x = Layout.from_dict(plain["layout"]).encode({"temp": 21, "co2": 500})
print(f"{loaded.readings} readings, {loaded.nbytes} bytes of state")
print("the same bits:", loaded.predict_one(x).tobytes() == learner.predict_one(x).tobytes())
