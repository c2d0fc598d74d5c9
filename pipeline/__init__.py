"""Learned threshold pruning from ONNX to ONNX.

The functions of the Python interface, the classes of settings that they take, and the types that
they return. Each is imported when it is first used, so that importing the package is quick.
"""

from ltp_pipeline.system import thread_env

# Type checkers take it for typing.TYPE_CHECKING. Importing typing would delay the signal handlers.
TYPE_CHECKING = False
__version__ = "0.1.0"
__all__ = [
    "AccelerationResult",
    "BaselineSettings",
    "BudgetSettings",
    "Comparison",
    "DataSettings",
    "ExportSettings",
    "GateResult",
    "GateSettings",
    "InputSettings",
    "InspectionResult",
    "LogSettings",
    "MethodSettings",
    "Metric",
    "ModelSettings",
    "Network",
    "PruneSettings",
    "QuantizationResult",
    "Report",
    "RunResult",
    "Settings",
    "TaskSettings",
    "TrailEntryInfo",
    "TrainSettings",
    "ValidationResult",
    "accelerate",
    "compare",
    "export",
    "gate",
    "handoff",
    "import_model",
    "init",
    "inspect",
    "pick",
    "quantize",
    "report",
    "run",
    "sparse_ops_library",
    "trail",
    "unpack",
    "validate",
]

if TYPE_CHECKING:
    from typing import Any

    from ltp_pipeline.api import (
        accelerate,
        compare,
        export,
        gate,
        handoff,
        init,
        inspect,
        pick,
        quantize,
        report,
        run,
        sparse_ops_library,
        trail,
        unpack,
        validate,
    )
    from ltp_pipeline.results.compare import Comparison
    from ltp_pipeline.results.metric import Metric
    from ltp_pipeline.results.schema import Report
    from ltp_pipeline.results.schema_parts import GateResult, TrailEntryInfo
    from ltp_pipeline.runner.finish import RunResult
    from ltp_pipeline.settings.schema import (
        BaselineSettings,
        BudgetSettings,
        DataSettings,
        ExportSettings,
        GateSettings,
        InputSettings,
        LogSettings,
        MethodSettings,
        ModelSettings,
        PruneSettings,
        Settings,
        TaskSettings,
        TrainSettings,
    )
    from ltp_pipeline.stages.import_model import import_model
    from ltp_pipeline.stages.import_model.network import Network
    from ltp_pipeline.stages.measure.any_file import ValidationResult
    from ltp_pipeline.stages.tools.accelerate import AccelerationResult
    from ltp_pipeline.stages.tools.inspect import InspectionResult
    from ltp_pipeline.stages.tools.quantize import QuantizationResult


# Every entry point imports this module before torch is loaded, which reads the environment.
thread_env.set_passive_waiting()

# Modules of the names that are neither functions of api.py nor classes of settings.
_MODULES = {
    "AccelerationResult": "stages.tools.accelerate",
    "Comparison": "results.compare",
    "InspectionResult": "stages.tools.inspect",
    "ValidationResult": "stages.measure.any_file",
    "Metric": "results.metric",
    "Network": "stages.import_model.network",
    "RunResult": "runner.finish",
    "QuantizationResult": "stages.tools.quantize",
    "Report": "results.schema",
    "TrailEntryInfo": "results.schema_parts",
    "GateResult": "results.schema_parts",
    "import_model": "stages.import_model",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    default_module = "settings.schema" if name.endswith("Settings") else "api"
    module = import_module(f"ltp_pipeline.{_MODULES.get(name, default_module)}")
    return getattr(module, name)
