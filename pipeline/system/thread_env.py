"""How idle threads wait. This module is light, because it is imported before everything else.

Threads of torch wait in a loop. That takes the cores from the very threads they wait for if other
work runs on these cores too. The thread libraries read the environment when torch is loaded, so it
has to be set before.
"""

import os
import sys

TOO_LATE = (
    "torch was loaded before ltp_pipeline, so its threads take a core even while they wait; "
    "import ltp_pipeline first, or set OMP_WAIT_POLICY=PASSIVE in the environment"
)
# Read by GNU's library, and by Intel's and LLVM's.
_SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
_SPIN_COUNT = "GOMP_SPINCOUNT"  # a user's more exact setting of the same
_late = False


def set_passive_waiting() -> None:
    """Let idle threads sleep, unless the user has set how they wait."""
    global _late
    if any(name in os.environ for name in (*_SETTINGS, _SPIN_COUNT)):
        return
    _late = "torch" in sys.modules
    if not _late:
        os.environ.update(_SETTINGS)


def was_set_too_late() -> bool:
    """Return once whether torch was loaded before the environment was set."""
    global _late
    was_late = _late
    _late = False
    return was_late
