"""How fast and how small int8 files are: `python -m benchmarks.int8`.

ResNet-50 and MobileNetV2 with 224 pixels, and an encoder of BERT's width with 128 tokens; weights
by seed, the smallest of each kernel zero. Latency is that of the int8 file beside the original
float file, interleaved, one thread, one sample; the median of the rounds. Bytes are those of the
packed int8 file beside the original's. Ratios of one run; the processor and whether it has VNNI
stand beside them, because they decide.
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

from benchmarks.networks import build
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
SAMPLES = 64  # by which ranges are chosen
JUDGED = 16
ROUNDS = 25


def network(name: str) -> onnx.ModelProto:
    """A network of the benchmark as a file has it."""
    return encoder() if name == "encoder" else as_onnx(build(name))


def inputs(name: str, count: int, seed: int) -> Feeds:
    """Random samples."""
    rng = np.random.default_rng(seed)
    if name == "encoder":
        return {"tokens": rng.integers(0, VOCABULARY, (count, 128))}
    return {"": rng.standard_normal((count, 3, 224, 224)).astype(np.float32)}


def named(feeds: Feeds, model: OnnxModel) -> Feeds:
    """The same by the names of the model's inputs."""
    return dict(zip([value.name for value in model.graph.input], feeds.values(), strict=True))


def session(path: Path) -> ort.InferenceSession:
    """On one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def pruned(model: OnnxModel, kernels: list[str], sparsity: float) -> OnnxModel:
    """The smallest weights of each kernel zero."""
    weights = {}
    for name in kernels:
        array = model.get_array(name).copy()
        flat = np.abs(array).reshape(-1)
        array.reshape(-1)[
            np.argpartition(flat, round(sparsity * flat.size))[: round(sparsity * flat.size)]
        ] = 0
        weights[name] = array
    return model.with_weights(weights)


def calibration(name: str, model: OnnxModel, samples: int) -> Calibration:
    """Random samples, and a judge by the arg-max of the float network."""
    shown = named(inputs(name, JUDGED, 1), model)
    expected: list[Any] = []

    def feeds(count: int) -> Iterator[Feeds]:
        for seed in range(0, count, 8):
            yield named(inputs(name, 8, 2 + seed), model)

    def judge(path: Path) -> FileEvaluation:
        result = session(path).run(None, dict(shown))[0]
        if not expected:
            expected.append(result.argmax(-1))
        return FileEvaluation(float((result.argmax(-1) == expected[0]).mean()), [result])

    return Calibration(
        feeds,
        judge,
        Metric(),
        ExportSettings(formats=("int8",), int8_samples=samples, int8_trials=0),
    )


def latency_ratio(paths: list[Path], feeds: Feeds, rounds: int) -> float:
    """The first file's median time by the second's, in turns."""
    sessions, times = [session(path) for path in paths], [list[float]() for _ in paths]
    for nth in range(rounds + 2):
        for one, elapsed in zip(sessions, times, strict=True):
            begun = time.perf_counter()
            one.run(None, dict(feeds))
            if nth > 1:
                elapsed.append(time.perf_counter() - begun)
    return float(np.median(times[0]) / np.median(times[1]))


def measure(name: str, sparsities: tuple[float, ...], samples: int, rounds: int) -> dict[str, Any]:
    """One network: bytes at each sparsity, latency at the first, and how long quantising took."""
    proto = network(name)
    original = OnnxModel.from_proto(proto)
    kernels = [kernel.name for kernel in find_layer_weights(original)]
    result: dict[str, Any] = {"bytes": {}}
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "original.onnx"), Path(folder, "int8.onnx")
        write_model(original, first)
        for sparsity in sparsities:
            model = pruned(original, kernels, sparsity)
            begun = time.perf_counter()
            weights, shown = (
                {k: model.get_array(k) for k in kernels},
                named(inputs(name, 2, 0), model),
            )
            built = int8.build_graph(
                GraphContext(model, weights, kernels, shown, calibration(name, model, samples))
            )
            result.setdefault("quantize_s", time.perf_counter() - begun)
            index = NonzeroIndex(built.model, built.weight_names or ())
            write_model(ENCODINGS["packed"].encode(built.model, index), second)
            verify_weights(second, built.weights, "packed")
            result["bytes"][f"{100 * sparsity:g} %"] = second.stat().st_size / first.stat().st_size
            if "latency" not in result:
                result["latency"] = latency_ratio(
                    [second, first], named(inputs(name, 1, 0), model), rounds
                )
                result["method"] = built.quantization.method if built.quantization else None
    return result


def main() -> None:
    """Measure and print; the ratios come last."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="MobileNetV2 at 90 %% alone, on few samples"
    )
    parser.add_argument("--only", action="append", choices=["resnet50", "mobilenetv2", "encoder"])
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    options = parser.parse_args()
    names = options.only or (
        ["mobilenetv2"] if options.quick else ["resnet50", "mobilenetv2", "encoder"]
    )
    results = {
        name: measure(name, SPARSITIES[:1], 8, 5)
        if options.quick
        else measure(name, SPARSITIES, SAMPLES, ROUNDS)
        for name in names
    }
    ratios = {f"{name} latency int8 / float": result["latency"] for name, result in results.items()}
    ratios |= {
        f"{name} bytes at {at}": value
        for name, f in results.items()
        for at, value in f["bytes"].items()
    }
    report = {
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
    machine = report["machine"]
    print(f"{machine}")
    for key, value in ratios.items():
        print(f"{key}: {value:.3f}")


if __name__ == "__main__":
    main()
