"""How threads wait for each other. Light, because it comes before all imports.

Torch's threads wait in a loop, which takes the cores from the very threads that are waited for when others work on them
too. Its libraries are told by the environment, and hear of it only before torch is loaded.
"""

import os
import sys

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import MutableMapping

TOO_LATE = (
    "torch was loaded before ltp_pipeline, so its threads take a core even while they wait; import ltp_pipeline "
    "first, or set OMP_WAIT_POLICY=PASSIVE in the environment"
)
_SETTINGS = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "KMP_BLOCKTIME": "0",
}  # of GNU's library, and of Intel's and LLVM's
_OTHERS = ("GOMP_SPINCOUNT",)  # with which a user says the same more exactly
_late = False


def set_passive_waiting(environ: "MutableMapping[str, str]" = os.environ) -> None:
    """Have threads that wait give their core away; what a user has set stays."""
    global _late
    if any(name in environ for name in (*_SETTINGS, *_OTHERS)):
        return
    _late = "torch" in sys.modules
    if not _late:
        environ.update(_SETTINGS)


def was_set_too_late() -> bool:
    """Whether torch was there first; told once."""
    global _late
    late, _late = _late, False
    return late
