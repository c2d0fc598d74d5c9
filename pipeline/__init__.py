"""Learned threshold pruning from ONNX to ONNX.

The verbs of the command line, for Python: `import_model`, `inspect`, `run`, `validate`, `gate`; the settings they take
and the types they return. Nothing heavy is imported before one of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ltp_pipeline import threads

__version__ = "0.1.0"
__all__ = [
    "BaselineSettings",
    "BudgetSettings",
    "DataSettings",
    "ExportSettings",
    "GateSettings",
    "Inspection",
    "KernelSettings",
    "LogSettings",
    "Measurement",
    "MethodSettings",
    "ModelSettings",
    "Network",
    "Outcome",
    "Settings",
    "TrainSettings",
    "Verdict",
    "gate",
    "import_model",
    "inspect",
    "run",
    "validate",
]

if TYPE_CHECKING:
    from ltp_pipeline.api import gate, inspect, run, validate
    from ltp_pipeline.config import (
        BaselineSettings,
        BudgetSettings,
        DataSettings,
        ExportSettings,
        GateSettings,
        KernelSettings,
        LogSettings,
        MethodSettings,
        ModelSettings,
        Settings,
        TrainSettings,
    )
    from ltp_pipeline.gates import Verdict
    from ltp_pipeline.results import Inspection, Measurement
    from ltp_pipeline.runner import Outcome
    from ltp_pipeline.stages.import_model import import_model
    from ltp_pipeline.stages.import_model.network import Network


threads.let_waiting_sleep()  # here, because every entry point comes by before torch is loaded
_HOMES = {  # of what is neither a verb nor a class of settings
    "Network": "stages.import_model.network",
    "Inspection": "results",
    "Measurement": "results",
    "Outcome": "runner",
    "Verdict": "gates",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "config" if name.endswith("Settings") else "api")
    return getattr(import_module(f"ltp_pipeline.{home}"), name)
