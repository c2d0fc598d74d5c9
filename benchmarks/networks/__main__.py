"""Write a network as an ONNX file: `python -m benchmarks.networks resnet50 --out resnet50.onnx`."""

import argparse
from pathlib import Path

import onnx

from benchmarks.networks import NETWORKS, as_onnx, build


def main() -> None:
    """Build, convert, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--out", type=Path, help="default: NETWORK.onnx")
    parser.add_argument("--classes", type=int, help="default: 1000, and 10 for resnet20")
    parser.add_argument(
        "--size", type=int, help="height and width of images; default: 224, and 32 for resnet20"
    )
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    size = given.size or NETWORKS[given.network].size
    network = build(given.network, given.classes, given.channels, size, given.seed)
    onnx.save(
        as_onnx(network, (given.channels, size, size)), given.out or Path(f"{given.network}.onnx")
    )


if __name__ == "__main__":
    main()
