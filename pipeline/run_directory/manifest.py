"""manifest.json: what a run depends on, what is done, and the hashes of files that a resume reads.

The manifest has a hash of its own, so that any change of its content is noticed before it is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import AugmentationInfo, LearningRateInfo
from ltp_pipeline.run_directory.names import MANIFEST
from ltp_pipeline.settings.schema import BaselineSettings, ExportSettings, Settings
from ltp_pipeline.system import distributed
from ltp_pipeline.system.files import json_text, write_json
from ltp_pipeline.system.json import read_json
from ltp_pipeline.system.text import quote_name

RESTORE_HINT = "restore it from a copy, or start over: ltp-pipeline run --fresh"
_MAX_SETTING_LENGTH = 200  # characters of a setting in a message
_HASH = "sha256"  # key of the manifest's own hash

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]


class _ManifestPart(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, validate_assignment=True
    )


class RunIdentity(_ManifestPart):
    """What must be the same for a run to be resumed.

    Attributes:
        model: Hash of the model.
        data: Fingerprint of the data.
        settings: The settings that change what is trained.
        task: Fingerprint of the custom task.
        entry: Entry of the parent's trail that this run finishes.
    """

    model: str | None = None
    data: str | None = None
    settings: dict[str, Any] = {}
    task: str | None = None
    entry: Annotated[int, Field(ge=0)] | None = None


class RunInputs(_ManifestPart):
    """Where the inputs are, for commands that are given only the run."""

    model: str
    settings: Settings


class ReportInputs(_ManifestPart):
    """What the report of a finished run was made of.

    Attributes:
        export: The [export] section.
        baseline: The [baseline] section. Its mode is that of the points in the report.
        has_gradual: Whether the report has gradual magnitude pruning, or it could not be trained.
        quantize: Whether int8 files were trained in 8 bits.
        library: Hash of the sparse operators that fast files were measured with.
    """

    export: ExportSettings
    baseline: BaselineSettings
    has_gradual: bool = False
    quantize: bool = False
    library: str | None = None


class LatencyModel(_ManifestPart):
    """The latency of fast files as a function of nonzeros, and what a budget of latency allows.

    Attributes:
        per_weight: Picoseconds that a nonzero of each layer takes.
        slope: How much the ratio to the original's latency grows with a picosecond.
        constant: The ratio without any nonzeros.
        budget: Picoseconds of all nonzeros with which the pruned original is as fast as asked.
        final_budget: The same for prunable layers with the learned masks, once they are timed.
    """

    per_weight: dict[str, Annotated[int, Field(ge=1)]]
    slope: Annotated[float, Field(gt=0)]
    constant: float
    budget: Annotated[int, Field(ge=0)]
    final_budget: Annotated[int, Field(ge=0)] | None = None


class Manifest(_ManifestPart):
    """The content of manifest.json.

    Attributes:
        identity: What must be the same for the run to be resumed.
        inputs: Where the inputs are.
        metric: What the networks are measured by.
        threads: Number of threads that the run computes with.
        default_budget: Largest drop that is allowed by default.
        rules: Fractions that rules chose when the run began.
        learning_rates: Learning rates of the trainings, by name: ltp, baseline.
        latency_model: The times that a budget of latency is planned with.
        augmentation: Changes of training images, if a rule chooses them.
        curve: Whether the baseline is a curve, as decided by the time of its first training.
        timings: Seconds of each stage.
        learned: Whether the trail is complete.
        proof: What the report was made of, once the run has finished.
        files: Hashes of files by name in the run directory.
        moving: Hashes of files that were about to be moved into place when this was written.
    """

    identity: RunIdentity = RunIdentity()
    inputs: RunInputs | None = None
    metric: Metric = Metric()
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    default_budget: NotNegative | None = None
    rules: dict[str, Share] = {}
    learning_rates: dict[str, LearningRateInfo] = {}
    latency_model: LatencyModel | None = None
    augmentation: AugmentationInfo | None = None
    curve: bool | None = None
    timings: dict[str, NotNegative] = {}
    learned: bool = False
    proof: ReportInputs | None = None
    files: dict[str, Sha256] = {}
    moving: dict[str, Sha256] = {}


class ManifestFile:
    """The manifest.json of a run directory, and the content that is written next."""

    def __init__(self, root: Path) -> None:
        self.path = root / MANIFEST
        self._content: Manifest | None = None

    @property
    def exists(self) -> bool:
        """Whether the file exists, whatever its content."""
        return self.path.is_file()

    @property
    def content(self) -> Manifest:
        """The content as it was last read or changed."""
        if self._content is None:
            self._content = _read_manifest(self.path) if self.exists else Manifest()
        return self._content

    def read(self) -> Manifest:
        """Read the file and return its content."""
        self._content = _read_manifest(self.path)
        return self._content

    def create(self, identity: RunIdentity) -> None:
        """Write a new manifest."""
        self._content = Manifest(identity=identity)
        if distributed.is_main_process():
            self._write()

    def write(self) -> None:
        """Write the content to the file; only the main process does."""
        if distributed.is_main_process():
            self.check_exists()
            self._write()

    def check_exists(self) -> None:
        """Raise InputError if the run directory was removed.

        Writing would create a new directory with a part of the run.
        """
        if not self.exists:
            message = f"{self.path.parent} was removed or renamed while the run was at work in it"
            raise InputError(message, "restore it and run the same command again, or start over")

    def _write(self) -> None:
        plain = json.loads(json_text(self.content.model_dump(mode="json", by_alias=True)))
        write_json(self.path, add_hash(plain))


def add_hash(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a manifest with its hash."""
    rest = {key: value for key, value in content.items() if key != _HASH}
    return {**rest, _HASH: hashlib.sha256(_canonical_json(rest).encode()).hexdigest()}


def _canonical_json(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def _read_manifest(path: Path) -> Manifest:
    content = read_json(path, RESTORE_HINT)
    if not isinstance(content, dict):
        raise InputError(f"{path} is damaged: it is not a JSON object", RESTORE_HINT)
    if content != add_hash(content):
        raise InputError(f"{path} is damaged: its content does not match its hash", RESTORE_HINT)
    del content[_HASH]
    try:
        return Manifest.model_validate_json(_canonical_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = quote_name(".".join(map(str, first["loc"])))
        raise InputError(f"{path} is damaged: {where}: {first['msg']}", RESTORE_HINT) from None


def describe_differences(old: RunIdentity, new: RunIdentity) -> list[str]:
    """Return what changed between two identities, a phrase for each change."""
    return _describe_changes(old.model_dump(), new.model_dump(), "")


def _describe_changes(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str) -> list[str]:
    changes = []
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            changes += _describe_changes(a, b, f"{prefix}{key}.")
        elif a != b and not prefix and key in ("data", "model", "task"):
            # Hashes tell nobody anything.
            changes.append(f"its {key} {'were' if key == 'data' else 'was'} another")
        elif a != b:
            changes.append(f"{prefix}{key} was {_format_setting(a)}, is now {_format_setting(b)}")
    return changes


def _format_setting(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SETTING_LENGTH else f"{text[:_MAX_SETTING_LENGTH]}…"
