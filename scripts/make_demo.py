"""Train the embedded example, a small ResNet, on scikit-learn's digits.

    python -m scripts.make_demo

The script writes model.onnx and digits.npz into pipeline/demo. It needs the extra `dev`.
"""

import io
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from benchmarks.contexts import train_dense
from benchmarks.small_networks import resnet
from ltp_pipeline.data.open import open_data
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.stages.import_model import import_model
from ltp_pipeline.system.files import write_bytes

DEMO = Path(__file__).resolve().parent.parent / "pipeline" / "demo"
SIZES = {"train": 1197, "val": 200, "test": 400}
TRAIN = {"epochs": 40, "lr": 0.1, "weight_decay": 5e-4, "batch_size": 64}


def write_data(path: Path) -> None:
    """Write digits in a fixed random order, as unsigned bytes from 0 to 16."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = digits.images[order][:, None].astype(np.uint8)
    labels = digits.target[order].astype(np.uint8)
    arrays: dict[str, Any] = {}
    start = 0
    for name, size in SIZES.items():
        end = start + size
        arrays[f"x_{name}"] = images[start:end]
        arrays[f"y_{name}"] = labels[start:end]
        start = end
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_bytes(path, content.getvalue())


def main() -> None:
    """Write the data, train the model, write the model."""
    write_data(DEMO / "digits.npz")
    network, state = import_model(resnet(shape=(1, 8, 8), stem_stride=1))
    settings = load_settings(None, DEMO / "ltp.toml", options={"train": TRAIN})
    data = open_data(settings.data, network.file.inputs, seed=0)
    accuracies = train_dense(network, state, data, settings, DEMO / "model.onnx")
    print(f"validation {accuracies['val']:.4f}  test {accuracies['test']:.4f}")


if __name__ == "__main__":
    main()
