"""The folder of a finished run, made without training."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ltp_pipeline.results.schema import Report
from ltp_pipeline.results.schema_parts import InputRecipe, ModelTensorInfo
from ltp_pipeline.stages.handoff.example import ModelInputs
from ltp_pipeline.system.files import external_data_path, write_json
from ltp_pipeline.system.hashing import sha256_file
from tests.support.models import Graph, masked_tokens, two_inputs
from tests.support.sample_report import OTHERS, Shapes, report_of, sample

SMALL: Shapes = [
    ("stem.weight", "MatMul", (8, 8)),
    ("body.weight", "MatMul", (8, 64)),
    ("head.weight", "MatMul", (64, 256)),
]


def lay_out(folder: Path) -> dict[str, Any]:
    """Write the report of a small network and every file that it names; one shipped file has external data."""
    report, _ = sample(shapes=SMALL)
    layers, baseline = report["layers"], report["baseline"]
    kept = [layer["nonzeros"] for layer in layers]
    kept_by_baseline = [layer["baseline_nonzeros"] for layer in layers]
    model = report["model"]
    model["sha256"] = _written(folder / model["path"], layers, [x["elements"] for x in layers])[
        "sha256"
    ]
    for file in report["pruned"]["files"]:
        labels = {"format": file["encoding"], "values": "exact", "source_sha256": model["sha256"]}
        file |= _written(folder / file["path"], layers, kept, file["encoding"] == "sparse", labels)
        report["sizes"][file["encoding"]] = file["bytes"]
    for file in baseline["files"]:
        file |= _written(folder / file["path"], layers, kept_by_baseline)
    baseline["curve"][0]["sha256"] = baseline["files"][0]["sha256"]
    for point in baseline["curve"][1:]:
        point["sha256"] = _written(
            folder / point["path"], layers, _spread(point["nonzeros"], layers)
        )["sha256"]
    for entry in report["trail"]:
        entry["sha256"] = _written(folder / entry["file"], layers, kept)["sha256"]
    write_json(folder / "report.json", report)
    return report


def _spread(nonzeros: int, layers: list[dict[str, Any]]) -> list[int]:
    """Distribute nonzeros over layers; the first layers are filled first."""
    found = []
    for layer in layers:
        found.append(min(nonzeros, layer["elements"]))
        nonzeros -= found[-1]
    return found


def _written(
    path: Path,
    layers: list[dict[str, Any]],
    kept: list[int],
    external: bool = False,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Write a model with these nonzeros in each layer; return its hashes and size."""
    arrays = {"others": np.ones(OTHERS, np.float32)}
    for layer, nonzeros in zip(layers, kept, strict=True):
        values = np.where(np.arange(layer["elements"]) < nonzeros, 0.5, 0).astype(np.float32)
        arrays[layer["name"]] = values.reshape(layer["shape"])
    names = ["x", *(f"y{i}" for i in range(len(layers)))]
    nodes = [
        helper.make_node("MatMul", [names[i], layer["name"]], [names[i + 1]])
        for i, layer in enumerate(layers)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size])
        for name, size in ((names[0], 8), (names[-1], 256))
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    model = helper.make_model(
        helper.make_graph(nodes, path.stem, ends[:1], ends[1:], tensors),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    helper.set_model_props(model, {f"ltp.{name}": text for name, text in (labels or {}).items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    data = external_data_path(path)
    onnx.save(model, path, save_as_external_data=external, location=data.name, size_threshold=0)
    parts = [path, *([data] if external else [])]
    hashes = {"sha256": sha256_file(path)} | (
        {"data_sha256": sha256_file(data)} if external else {}
    )
    return hashes | {"bytes": sum(part.stat().st_size for part in parts)}


RECIPE = {
    "stored": {"type": "uint8", "shape": [32, 32, 3], "range": [0, 255]},
    "image": {"mode": "RGB", "size": [32, 32], "crop": None},
    "add_channel": False,
    "channels_to_front": True,
    "resize": [32, 32],
    "type": "float32",
    "scale": 0.00392,
    "mean": [0.49, 0.48, 0.45],
    "std": [0.25, 0.24, 0.26],
    "channels_to_back": False,
    "flatten": False,
}

IMAGE = {
    "sample_shape": [3, 32, 32],
    "preprocessing_steps": [
        "decode the file to RGB, 0 to 255",
        "resize to 32 × 32 pixels, bilinear",
    ],
    "preprocessing": RECIPE,
}


def inputs_of(recipe: InputRecipe | dict[str, Any], **tensor: Any) -> ModelInputs:
    """Return the model inputs of one input named image."""
    if isinstance(recipe, dict):
        recipe = InputRecipe.model_validate_json(json.dumps(recipe))
    return ModelInputs(
        [
            ModelTensorInfo(
                **{"name": "image", "type": "FLOAT", "shape": ("batch", 3, 32, 32), **tensor}
            )
        ],
        {"image": recipe},
    )


def classifier() -> ModelProto:
    graph = Graph()
    pooled = graph.add("Flatten", graph.add("GlobalAveragePool", "image"))
    return graph.model({"image": ["batch", 3, 32, 32]}, [graph.gemm(pooled, "fc", 3, 10)])


def write_run(folder: Path, formats: tuple[str, ...] = ("sparse", "packed")) -> dict[str, Any]:
    """Write a run directory with small models and return its report."""
    report, _ = sample()
    report["model"]["inputs"] = [{"name": "image", "type": "FLOAT", "shape": ["batch", 3, 32, 32]}]
    report["model"]["outputs"] = [{"name": "logits", "type": "FLOAT", "shape": ["batch", 10]}]
    report["data"]["inputs"] = {"image": dict(IMAGE)}
    report["settings"]["data"] |= {"scale": 0.00392, "resize": [32, 32], "validation_fraction": 0.1}
    folder.mkdir(exist_ok=True)
    template = report["pruned"]["files"][0]
    report["pruned"]["files"] = []
    for name in formats:
        path = folder / f"model.{name.replace('-', '.')}.onnx"
        model = classifier()
        model.doc_string = name
        path.write_bytes(model.SerializeToString())
        graph, _, encoding = name.rpartition("-")
        metadata = {
            "graph": graph or "original",
            "encoding": encoding,
            "path": path.name,
            "sha256": sha256_file(path),
        }
        report["pruned"]["files"].append({**template, **metadata})
    write_json(folder / "report.json", report)
    (folder / "report.html").write_text("<p>report")
    return report


TOKENS = RECIPE | {
    "stored": {"type": "uint8", "shape": [3], "range": [2, 5]},
    "type": "int64",
    "channels_to_front": False,
    **dict.fromkeys(("image", "scale", "mean", "std", "resize")),
}
VECTOR = TOKENS | {
    "stored": {"type": "float32", "shape": [4], "range": [-1, 1]},
    "type": "float32",
    "scale": 0.5,
}


def write_two_inputs_run(folder: Path) -> Report:
    """Write a finished run of a model with two inputs, a vector and three tokens."""
    return _of(folder, two_inputs(), vector=VECTOR, tokens=TOKENS)


def write_masked_run(folder: Path, width: int | None = None, batch: int | None = None) -> Report:
    """Write a finished run of a model that takes sequences of 2 to 6 tokens, padded with 1, and their mask."""
    stored = {"type": "int32", "shape": [width], "range": [3, 9], "lengths": [2, 6]}
    mask = {"type": "bool", "shape": [width], "range": [0, 1]}
    ids, marks = TOKENS | {"stored": stored, "pad": 1}, TOKENS | {"stored": mask, "mask_of": "ids"}
    return _of(folder, masked_tokens(width or "T", batch or "N"), ids=ids, ids_mask=marks)


def _of(folder: Path, model: ModelProto, **recipes: dict[str, Any]) -> Report:
    report = write_run(folder)
    for file in report["pruned"]["files"]:
        (folder / file["path"]).write_bytes(model.SerializeToString())
        file["sha256"] = sha256_file(folder / file["path"])
    report["model"]["inputs"] = [
        {
            "name": i.name,
            "type": TensorProto.DataType.Name(i.type.tensor_type.elem_type),
            "shape": [d.dim_value or d.dim_param for d in i.type.tensor_type.shape.dim],
        }
        for i in model.graph.input
    ]
    report["data"]["inputs"] = {name: {"preprocessing": recipe} for name, recipe in recipes.items()}
    return report_of(report)
