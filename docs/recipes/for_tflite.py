"""Another pipeline wants a TFLite file: write one, without TensorFlow.

It prints the size of the file with both kinds of weights, and its first bytes.

    float32: 0.6 kB, TFL3
    int8: 0.7 kB, TFL3
"""

import random

from edge_opid import Layout, Sensor, WoodburyLearner
from gateway.tflite import matrix_to_tflite

layout = Layout([Sensor("temp", 20, 5), Sensor("co2", 420, 100)])
learner = WoodburyLearner(0, layout.width, classes=2)
chance = random.Random(10)
for label in [0, 1] * 100:
    values = {"temp": chance.gauss(20 + 2 * label, 1), "co2": chance.gauss(420 + 200 * label, 60)}
    learner.learn_one(layout.encode(values), label)

W, classes = learner.weights()[0], ["empty", "occupied"]
for weights in ("float32", "int8"):
    data = matrix_to_tflite(W, layout.columns, classes, weights=weights)
    print(f"{weights}: {len(data) / 1000:.1f} kB, {data[4:8].decode()}")
