"""What a user would write instead of a node: paho, a learner of a library, and SQLite.

    python peers.py NAME PORT READING_TOPIC PREDICTION_TOPIC QOS DATABASE

Each predicts before it learns, publishes what it predicted, and, but for the echo and scikit-learn,
keeps every reading in SQLite with a commit per 128 that survives a power cut. All of them decode
with msgpack, the fastest there is. The values come standardised, so none of them scales.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

HOST = "127.0.0.1"
COMMIT_READINGS = 128
CLASSES = ("fresh", "stale", "bad")
Step = Callable[[bytes | bytearray], bytes]
"""A reading comes in, what was predicted goes out."""


def durable(step: Step, database: str) -> Step:
    """The same, and every reading is kept."""
    store, kept = sqlite3.connect(database, isolation_level=None), 0
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = FULL")  # NORMAL may lose commits with the power
    store.execute("CREATE TABLE readings (payload BLOB)")
    store.execute("BEGIN")

    def keep(payload: bytes | bytearray) -> bytes:
        nonlocal kept
        store.execute("INSERT INTO readings VALUES (?)", (payload,))
        kept += 1
        if kept % COMMIT_READINGS == 0:
            store.execute("COMMIT")
            store.execute("BEGIN")
        return step(payload)

    return keep


def river() -> Step:
    """Softmax regression of river."""
    from river.linear_model import SoftmaxRegression  # noqa: PLC0415 - only who is asked for

    model: Any = SoftmaxRegression()

    def step(payload: bytes | bytearray) -> bytes:
        reading = msgpack.unpackb(payload)
        values = reading["values"]
        predicted = model.predict_proba_one(values)
        model.learn_one(values, reading["label"])
        return bytes(msgpack.packb({"seq": reading["seq"], "prediction": predicted}))

    return step


def vowpal() -> Step:
    """Vowpal Wabbit, one class against all, from the text it reads."""
    from vowpalwabbit import Workspace  # noqa: PLC0415 - only who is asked for

    model = Workspace(f"--oaa {len(CLASSES)} --quiet")

    def step(payload: bytes | bytearray) -> bytes:
        reading = msgpack.unpackb(payload)
        features = " ".join([f"{name}:{value}" for name, value in reading["values"].items()])
        predicted = model.predict(f"| {features}")
        model.learn(f"{CLASSES.index(reading['label']) + 1} | {features}")
        label = CLASSES[predicted - 1]
        return bytes(msgpack.packb({"seq": reading["seq"], "prediction": label}))

    return step


def sklearn() -> Step:
    """Logistic regression of scikit-learn, by stochastic gradient descent."""
    import numpy as np  # noqa: PLC0415 - only who is asked for
    from sklearn.linear_model import SGDClassifier  # noqa: PLC0415

    model = SGDClassifier(loss="log_loss")

    def step(payload: bytes | bytearray) -> bytes:
        reading = msgpack.unpackb(payload)
        x = np.array([list(reading["values"].values())])
        predicted = model.predict(x)[0] if hasattr(model, "coef_") else CLASSES[0]
        model.partial_fit(x, [reading["label"]], classes=CLASSES)
        return bytes(msgpack.packb({"seq": reading["seq"], "prediction": str(predicted)}))

    return step


def main(name: str, port: str, reading: str, prediction: str, qos: str, database: str) -> None:
    """Serve until killed; say when it listens."""
    steps = {
        "echo": lambda: bytes,
        "river": lambda: durable(river(), database),
        "vowpal": lambda: durable(vowpal(), database),
        "sklearn": sklearn,
    }
    step, level = steps[name](), int(qos)

    def on_message(client: Client, _: object, message: MQTTMessage) -> None:
        client.publish(prediction, step(message.payload), level)

    client = Client(CallbackAPIVersion.VERSION2)
    client.on_connect = lambda client, *_: client.subscribe(reading, 1)
    client.on_subscribe = lambda *_: print("ready", flush=True)
    client.on_message = on_message
    client.connect(HOST, int(port))
    client.loop_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
