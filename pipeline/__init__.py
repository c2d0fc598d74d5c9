"""Learned threshold pruning from ONNX to ONNX.

The verbs of the command line, for Python: `import_model`, `inspect`, `run`, `validate`, `gate`. Nothing heavy is
imported before one of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ltp_pipeline import threads

__version__ = "0.1.0"
__all__ = ["gate", "import_model", "inspect", "run", "validate"]

if TYPE_CHECKING:
    from ltp_pipeline.api import gate, inspect, run, validate
    from ltp_pipeline.stages.import_model import import_model


threads.let_waiting_sleep()  # here, because every entry point comes by before torch is loaded


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("ltp_pipeline.api"), name)
