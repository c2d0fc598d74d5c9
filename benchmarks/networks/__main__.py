"""Write a network as an ONNX file: `python -m benchmarks.networks resnet50 --out resnet50.onnx`."""

import argparse
from pathlib import Path

import onnx

from benchmarks.networks import NETWORKS, as_onnx, build_network


def main() -> None:
    """Build a network, convert it to ONNX and save it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__)
    parser.add_argument("network", choices=NETWORKS, help="name of the network")
    parser.add_argument("--out", type=Path, help="path of the file; default: NETWORK.onnx")
    parser.add_argument(
        "--classes", type=int, help="number of classes; default: 1000, and 10 for resnet20"
    )
    parser.add_argument(
        "--size",
        type=int,
        help="height and width of images in pixels; default: 224, and 32 for resnet20",
    )
    parser.add_argument(
        "--channels", type=int, default=3, help="channels of images; default: %(default)s"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the weights; default: %(default)s"
    )
    options = parser.parse_args()
    size = options.size or NETWORKS[options.network].size
    network = build_network(options.network, options.classes, options.channels, size, options.seed)
    onnx.save(
        as_onnx(network, (options.channels, size, size)),
        options.out or Path(f"{options.network}.onnx"),
    )


if __name__ == "__main__":
    main()
