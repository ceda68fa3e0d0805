"""Who is in the fleet, and how each sensor lives: records, the lifecycle table, the fleet."""

from .lifecycle import (
    IN_LAYOUT,
    TABLE,
    EventError,
    LifecycleError,
    SensorEvent,
    SensorState,
    diagram,
    step,
)
from .records import (
    ChangeRecord,
    ChangeState,
    ExampleRecord,
    FitRecord,
    LayoutRecord,
    NodeKey,
    NodeRecord,
    OrderRecord,
    Record,
    SensorRecord,
    SummaryRecord,
)

__all__ = [
    "IN_LAYOUT",
    "TABLE",
    "ChangeRecord",
    "ChangeState",
    "EventError",
    "ExampleRecord",
    "FitRecord",
    "LayoutRecord",
    "LifecycleError",
    "NodeKey",
    "NodeRecord",
    "OrderRecord",
    "Record",
    "SensorEvent",
    "SensorRecord",
    "SensorState",
    "SummaryRecord",
    "diagram",
    "step",
]
