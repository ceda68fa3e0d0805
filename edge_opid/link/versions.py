"""Which version of MQTT the next CONNECT speaks. It reads no clock: the time comes in."""

from __future__ import annotations

from typing import Final

MQTT_5: Final = "MQTT 5"
MQTT_311: Final = "MQTT 3.1.1"
DOUBTS = 3  # unanswered CONNECTs in a row: one is a packet lost or a broker that is starting


class Versions:
    """Begins with MQTT 5 (or as told) and leaves it only for a reason, and not for ever.

    A broker that does not have a version says so (reason 132, or 1 of 3.1.1): then the other one is
    spoken at once. A broker may also hang up on bytes it does not know, or (amqtt 0.12) choke on
    them and say nothing; but so does a broker that is overloaded. After three such attempts in a
    row the other version gets one. The first choice is tried again at the first connection made
    `again_s` after it was left.

    >>> versions = Versions(mqtt_5_first=True, again_s=3_600.0)
    >>> versions.note_unsupported(now_s=0.0)
    >>> versions.choose(now_s=1.0), versions.choose(now_s=3_600.0)
    ('MQTT 3.1.1', 'MQTT 5')
    """

    def __init__(self, *, mqtt_5_first: bool, again_s: float) -> None:
        self._first, self._other = (MQTT_5, MQTT_311) if mqtt_5_first else (MQTT_311, MQTT_5)
        self._again_s = again_s
        self._left_s: float | None = None  # when the first choice was left
        self._unanswered = 0  # CONNECTs of this version in a row

    def choose(self, now_s: float) -> str:
        """The version to speak now."""
        if self._left_s is not None and now_s - self._left_s >= self._again_s:
            self._return()
        return self._first if self._left_s is None else self._other

    def note_answer(self) -> None:
        """The broker took the version, whatever it thought of the password."""
        self._unanswered = 0

    def note_unsupported(self, now_s: float) -> None:
        """The broker said that it does not have the version."""
        if self._left_s is not None:
            self._return()
        else:
            self._left_s, self._unanswered = now_s, 0

    def note_silence(self, now_s: float) -> None:
        """The broker hung up before its answer, or gave none."""
        self._unanswered += 1
        if self._left_s is not None or self._unanswered >= DOUBTS:
            self.note_unsupported(now_s)

    def _return(self) -> None:
        self._left_s, self._unanswered = None, 0
