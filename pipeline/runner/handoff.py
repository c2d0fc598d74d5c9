"""Deliver a network of a finished run: its pruned network, or one that it is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.evaluation import evaluate_own_gates
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.stages import handoff
from ltp_pipeline.stages.handoff.select_network import select_network

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import Samples
    from ltp_pipeline.results.schema import Report

BEST = "best"
# Keys of the report by the names of networks; the best one depends on the report.
NETWORKS = {
    "pruned": "pruned",
    "baseline": "baseline",
    "gradual": "gradual_baseline",
    "ltp": "ltp",
}


def check_name(name: str) -> None:
    """Raise InputError if there is no network of this name."""
    names = (BEST, *NETWORKS)
    if name not in names:
        raise InputError(
            f"network must be one of {', '.join(names)}, got {name}", f'pass network="{BEST}"'
        )


def find_key(report: Report, name: str) -> str:
    """Return the key of a network in the report.

    Args:
        report: The report.
        name: One of NETWORKS, or "best": the pruned network, unless a baseline is better on the
            validation split beyond noise.
    """
    if name == BEST:
        return report.better_key or "pruned"
    return NETWORKS[name]


def deliver_network(
    report: Report,
    root: Path,
    out: Path,
    name: str = BEST,
    samples: Mapping[str, Samples] | None = None,
) -> Path:
    """Fill a handoff folder with a network of a run.

    Args:
        report: Report of the run.
        root: Run directory.
        out: Folder to fill.
        name: Name of the network, as for `find_key`.
        samples: Stored samples by input for the example; None for generated ones.
    """
    key = find_key(report, name)
    if key == "pruned":
        return handoff.run(report, root, out, samples)
    run_directory = RunDirectory(root)
    if run_directory.is_run:
        run_directory.load_inputs()
    selected = select_network(report, key, is_picked=run_directory.entry is not None)
    return handoff.run_other(evaluate_own_gates(selected), key, root, out, samples)
