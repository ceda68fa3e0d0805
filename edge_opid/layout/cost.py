"""What a layout costs, said before it is paid."""

from __future__ import annotations

from dataclasses import dataclass

from ..learner.gram import GramLearner
from ..learner.settings import Settings
from ..learner.woodbury import WoodburyLearner


@dataclass(frozen=True, slots=True)
class Cost:
    """The bytes a learner would take; printing it gives one line to read."""

    sensors: int
    vanishing_columns: int
    surviving_columns: int
    classes: int

    @property
    def woodbury_bytes(self) -> int:
        """State of a float32 `WoodburyLearner`."""
        return WoodburyLearner.bytes_for(self._settings)

    @property
    def gram_bytes(self) -> int:
        """State of a float32 `GramLearner`."""
        return GramLearner.bytes_for(self._settings)

    @property
    def _settings(self) -> Settings:
        return Settings(self.vanishing_columns, self.surviving_columns, self.classes)

    def __str__(self) -> str:
        columns = self.vanishing_columns + self.surviving_columns
        return (
            f"{self.sensors} sensors, {columns} columns ({self.vanishing_columns} vanish): "
            f"WoodburyLearner {self.woodbury_bytes / 1000:.1f} kB, "
            f"GramLearner {self.gram_bytes / 1000:.1f} kB"
        )
