"""The shape of report.json, schema "ltp-report/1".

A key of the first design is required, so that "not measured" is written as null and never left out; keys that came
later have defaults. Unknown keys are allowed: a newer program may say more. `report.schema.json` is generated from
here by `python -m ltp_pipeline.report_schema`.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

SCHEMA = "ltp-report/1"
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(ge=0)]
Whole = Annotated[int, Field(ge=0)]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
Reasons = Annotated[dict[str, str], Field(description="why a key of this object is null")]


class Part(BaseModel):
    """An object of the report: numbers are numbers, never text."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


class GateResult(Part):
    """One gate, judged."""

    name: str
    limit: float | bool | str | None
    value: float | None
    passed: bool
    detail: str = ""
    advice: Annotated[str, Field(description="what would help, where it failed")] = ""


class Tensor(Part):
    """An input or output; a dimension is a number, a symbol's name, or null where nothing is said."""

    name: str
    type: str
    shape: list[int | str | None] | None


class Weight(Part):
    """A float weight that is no kernel, so that it is not pruned."""

    name: str
    elements: Whole


class Model(Part):
    """The file that was pruned."""

    path: str | None
    sha256: str | None
    opset: Whole
    kernels: Whole
    kernel_elements: Whole
    float_elements: Annotated[Whole | None, Field(description="of all float weights, kernels among them")] = None
    other_weights: Annotated[list[Weight], Field(description="the largest float weights that are no kernels")] = []
    data: Annotated[list[str], Field(description="files beside it that hold weights; the hash covers them")] = []
    name: str | None = None
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []


class AccuracyPart(Part):
    """Measured in onnxruntime on one split."""

    top1: Share
    top5: Share | None
    samples: Whole
    split: str
    equal_argmax: Annotated[
        Share | None, Field(description="beside explained: share of samples whose largest output is the original's")
    ] = None


class Original(Part):
    """The original file, measured."""

    accuracy: AccuracyPart | None
    bytes: Whole | None
    latency_ms: Number | None
    path: str | None = None
    reasons: Reasons = {}


class File(Part):
    """An exported file; the path is relative to the report."""

    format: str
    path: str
    sha256: str | None
    data_sha256: Annotated[str | None, Field(description="of PATH.data, where the weights are outside")] = None
    bytes: Whole | None
    nonzeros: Annotated[Whole | None, Field(description="of its kernels; rounded values may leave fewer")] = None
    accuracy: AccuracyPart | Share | None
    parity_max_abs: Number | None
    load_ms: Number | None
    latency_ms: Number | None
    original_latency_ms: Number | None = None
    values: Annotated[str, Field(description="exact, or what they were rounded to")] = "exact"
    reasons: Reasons = {}


class Epochs(Part):
    """How long a network was trained."""

    prune: Whole
    finetune: Whole


class Pruned(Part):
    """A pruned network: what its exported file does."""

    accuracy: AccuracyPart | None
    drop: Annotated[float, Field(ge=-1, le=1)] | None
    compression: Annotated[float, Field(ge=1)] | None
    model_compression: Annotated[
        float | None, Field(gt=0, description="float weights of the whole model / those that are not zero")
    ] = None
    sparsity: Share | None
    nonzeros: Whole | None
    epochs: Epochs | None
    files: list[File]
    drop_interval: Interval | None = None
    reasons: Reasons = {}


class Baseline(Pruned):
    """Global magnitude pruning to the same compression, trained as long."""

    method: str


class Difference(Part):
    """Top-1 of the pruned network minus top-1 of the baseline."""

    value: float | None
    interval: Interval | None = None


class Layer(Part):
    """A kernel; weights with w² below the threshold were pruned."""

    name: str
    op: str
    shape: list[Whole]
    elements: Whole
    nonzeros: Whole | None
    threshold: Number | None
    temperature: Number | None
    baseline_nonzeros: Whole | None
    prunable: bool
    reason: str | None


class TrailPart(Part):
    """One of the progressively sparser networks; accuracy is of the validation split, before fine-tuning."""

    entry: Whole
    epoch: Whole
    compression: Number
    accuracy: Share
    file: str
    model_compression: Number | None = None
    sha256: str | None = None
    data_sha256: Annotated[str | None, Field(description="of FILE.data, where the weights are outside")] = None
    chosen: bool = False


class Environment(Part):
    """Where it ran."""

    versions: dict[str, str | None]
    platform: str
    threads: Whole | None
    device: str
    seed: int


class StoredSamples(Part):
    """Samples before they are prepared; those that are images, once decoded."""

    type: str
    shape: list[Whole]
    range: Annotated[Interval, Field(description="smallest and largest value")]


class Image(Part):
    """What image files are decoded to; `crop` is the share of the shorter side that the centre keeps."""

    mode: Literal["L", "RGB", "RGBA"]
    size: Annotated[list[Whole], Field(min_length=2, max_length=2)]
    crop: float | None


class Recipe(Part):
    """From stored samples to the model's input, in this order; `image` where they are files of images."""

    stored: StoredSamples
    image: Image | None
    add_channel: bool
    channels_to_front: bool
    resize: Annotated[list[Whole], Field(min_length=2, max_length=2)] | None
    type: str
    scale: float | None
    mean: list[float] | None
    std: list[float] | None
    channels_to_back: bool
    flatten: bool


class Data(Part):
    """What it was trained and measured on."""

    path: str | None = None
    classes: Whole | None = None
    splits: dict[str, Whole | None] = {}
    sample_shape: Annotated[list[Whole] | None, Field(description="of one sample as the model takes it")] = None
    notes: list[str] = []
    preparation: Annotated[
        list[str] | None, Field(description="from a stored sample to the input, but for scale, mean and std")
    ] = None
    recipe: Annotated[Recipe | None, Field(description="the same for machines, with scale, mean and std")] = None
    class_names: Annotated[list[str] | None, Field(description="by number, where the data have names")] = None


class Histogram(Part):
    """Counts of |w| in one kernel before and after; the threshold belongs to w²."""

    name: str
    threshold: Number | None
    edges: list[float]
    before: list[Whole]
    after: list[Whole]


class Scatter(Part):
    """w² of the same weights before and after; the threshold belongs to w²."""

    name: str
    threshold: Number | None
    before: list[Number]
    after: list[Number]


class Report(Part):
    """report.json: the truth that report.md and report.html only render."""

    schema_: Annotated[Literal["ltp-report/1"], Field(alias="schema")]
    verdict: Literal["passed", "failed", "not-gated"]
    gates: list[GateResult]
    model: Model
    original: Original
    pruned: Pruned
    baseline: Baseline | None
    layers: list[Layer]
    trail: list[TrailPart]
    settings: dict[str, Any]
    environment: Environment
    timings: dict[str, Number]
    baseline_reason: str | None = None
    difference: Difference | None = None
    data: Data | None = None
    notes: list[str] = []
    budget_missed: Annotated[str | None, Field(description="why the network is outside its accuracy budget")] = None
    unlikely_gain: Annotated[
        str | None, Field(description="a warning where the pruned network is better than the original beyond chance")
    ] = None
    histograms: list[Histogram] = []
    scatter: Scatter | None = None
    sizes: dict[str, Whole | None] = {}
    metric: Annotated[
        Literal["top-1", "agreement", "explained"],
        Field(
            description="what top1 means here: right answers, or, without labels, the share of answers that agree with "
            "the original's (agreement) or the share of its outputs' variance that is met (explained)"
        ),
    ] = "top-1"


def problems(report: Mapping[str, Any], missing: bool = True) -> list[str]:
    """What is wrong with a report, one line each; `missing=False` overlooks keys that are not there."""
    try:
        Report.model_validate_json(json.dumps(report, allow_nan=False))
    except ValidationError as error:
        found = [e for e in error.errors() if missing or e["type"] != "missing"]
        return [f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in found]
    except ValueError as error:
        return [str(error)]
    return []


def check(report: Mapping[str, Any]) -> None:
    """Stop before a report is written that its own readers would refuse."""
    if found := problems(report):
        raise ValueError(f"the report does not keep to {SCHEMA}: {'; '.join(found)}")


def json_schema() -> str:
    """The JSON Schema as it is shipped."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **Report.model_json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(json_schema(), end="")
