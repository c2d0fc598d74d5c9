"""Measure the latency and the size of int8 files: `python -m benchmarks.int8`.

The networks are ResNet-50 and MobileNetV2 with 224 pixels, and an encoder of BERT's width with 128
tokens. Weights are random, and the smallest of each layer are zero. Latency is the median time of
the int8 file divided by that of the original float file; both alternate, with one sample on one
thread. Size is that of the packed int8 file divided by the original's. Ratios depend on the
processor and on VNNI, so both are reported.
"""

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.networks import build_network
from benchmarks.networks.export import as_onnx
from benchmarks.transformer import VOCABULARY, encoder
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.exporters.files.read_back import verify_weights
from ltp_pipeline.exporters.files.run_proof import Feeds
from ltp_pipeline.exporters.graphs import int8
from ltp_pipeline.exporters.graphs.graph import GraphContext
from ltp_pipeline.exporters.int8.search import Calibration, FileEvaluation
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.stages.report.environment import CPUS, find_processor

SPARSITIES = (0.90, 0.95)
SAMPLES = 64  # number of calibration samples
EVALUATED = 16  # number of samples on which int8 is compared with float
ROUNDS = 25


def make_network(name: str) -> onnx.ModelProto:
    """Return a network with random weights as an ONNX model."""
    return encoder() if name == "encoder" else as_onnx(build_network(name))


def make_inputs(name: str, count: int, seed: int) -> Feeds:
    """Return random samples of a network."""
    rng = np.random.default_rng(seed)
    if name == "encoder":
        return {"tokens": rng.integers(0, VOCABULARY, (count, 128))}
    return {"": rng.standard_normal((count, 3, 224, 224)).astype(np.float32)}


def rename_inputs(feeds: Feeds, model: OnnxModel) -> Feeds:
    """Return feeds by the names of the inputs of a model."""
    return dict(zip([value.name for value in model.graph.input], feeds.values(), strict=True))


def make_session(path: Path) -> ort.InferenceSession:
    """Return a session of one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def prune_layers(model: OnnxModel, weight_names: list[str], sparsity: float) -> OnnxModel:
    """Return the model with the smallest weights of each layer set to zero."""
    weights = {}
    for name in weight_names:
        array = model.get_array(name).copy()
        sizes = np.abs(array).reshape(-1)
        count = round(sparsity * sizes.size)
        array.reshape(-1)[np.argpartition(sizes, count)[:count]] = 0
        weights[name] = array
    return model.with_weights(weights)


def make_calibration(name: str, model: OnnxModel, samples: int) -> Calibration:
    """Return random calibration samples and an evaluation by the arg-max of the float network.

    Args:
        name: Name of the network.
        model: The float model, whose file is evaluated first.
        samples: Number of calibration samples.
    """
    evaluated = rename_inputs(make_inputs(name, EVALUATED, 1), model)
    expected: list[Any] = []

    def iter_feeds(count: int) -> Iterator[Feeds]:
        for seed in range(0, count, 8):
            yield rename_inputs(make_inputs(name, 8, 2 + seed), model)

    def evaluate_file(path: Path) -> FileEvaluation:
        result = make_session(path).run(None, dict(evaluated))[0]
        if not expected:
            expected.append(result.argmax(-1))
        return FileEvaluation(float((result.argmax(-1) == expected[0]).mean()), [result])

    return Calibration(
        iter_feeds,
        evaluate_file,
        Metric(),
        ExportSettings(formats=("int8",), int8_samples=samples, int8_trials=0),
    )


def measure_latency_ratio(paths: list[Path], feeds: Feeds, rounds: int) -> float:
    """Return the median time of the first file divided by that of the second; files alternate."""
    sessions, times = [make_session(path) for path in paths], [list[float]() for _ in paths]
    for i in range(rounds + 2):
        for session, elapsed in zip(sessions, times, strict=True):
            begin = time.perf_counter()
            session.run(None, dict(feeds))
            if i > 1:  # the first rounds warm up
                elapsed.append(time.perf_counter() - begin)
    return float(np.median(times[0]) / np.median(times[1]))


def measure_network(
    name: str, sparsities: tuple[float, ...], samples: int, rounds: int
) -> dict[str, Any]:
    """Return sizes at each sparsity, the latency at the first, and the seconds of quantization.

    Args:
        name: Name of the network.
        sparsities: Fractions of zeros.
        samples: Number of calibration samples.
        rounds: Number of measured runs.
    """
    original = OnnxModel.from_proto(make_network(name))
    weight_names = [layer.name for layer in find_layer_weights(original)]
    result: dict[str, Any] = {"bytes": {}}
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "original.onnx"), Path(folder, "int8.onnx")
        write_model(original, first)
        for sparsity in sparsities:
            model = prune_layers(original, weight_names, sparsity)
            begin = time.perf_counter()
            weights = {weight: model.get_array(weight) for weight in weight_names}
            sample = rename_inputs(make_inputs(name, 2, 0), model)
            calibration = make_calibration(name, model, samples)
            graph = int8.build_graph(
                GraphContext(model, weights, weight_names, sample, calibration)
            )
            result.setdefault("quantize_s", time.perf_counter() - begin)
            index = NonzeroIndex(graph.model, graph.weight_names or ())
            write_model(ENCODINGS["packed"].encode(graph.model, index), second)
            verify_weights(second, graph.weights, "packed")
            result["bytes"][f"{100 * sparsity:g} %"] = second.stat().st_size / first.stat().st_size
            if "latency" not in result:
                feeds = rename_inputs(make_inputs(name, 1, 0), model)
                result["latency"] = measure_latency_ratio([second, first], feeds, rounds)
                result["method"] = graph.quantization.method if graph.quantization else None
    return result


def main() -> None:
    """Measure the selected networks and print the ratios last."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure only MobileNetV2 at 90 %%, with few samples"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=["resnet50", "mobilenetv2", "encoder"],
        help="measure only this network; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    options = parser.parse_args()
    names = options.only or (
        ["mobilenetv2"] if options.quick else ["resnet50", "mobilenetv2", "encoder"]
    )
    if options.quick:
        results = {name: measure_network(name, SPARSITIES[:1], 8, 5) for name in names}
    else:
        results = {name: measure_network(name, SPARSITIES, SAMPLES, ROUNDS) for name in names}
    ratios = {f"{name} latency int8 / float": result["latency"] for name, result in results.items()}
    for name, result in results.items():
        ratios |= {f"{name} bytes at {at}": value for at, value in result["bytes"].items()}
    report: dict[str, Any] = {
        "command": "python -m benchmarks.int8" + (" --quick" if options.quick else ""),
        "machine": {
            "processor": find_processor(),
            "vnni": "vnni" in (CPUS.read_text() if CPUS.is_file() else ""),
            "cores": os.cpu_count(),
            "load": os.getloadavg()[0],
            "platform": platform.platform(),
        },
        "versions": {"onnx": onnx.__version__, "onnxruntime": ort.__version__},
        "results": results,
        "ratios": ratios,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(report["machine"])
    for key, value in ratios.items():
        print(f"{key}: {value:.3f}")


if __name__ == "__main__":
    main()
