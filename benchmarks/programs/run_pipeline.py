"""Import a model, run the pipeline, and print the seconds of the import and the report.

python benchmarks/programs/run_pipeline.py MODEL DATA OUT COMPRESSION BATCH
"""

import json
import sys
import time

import onnxruntime  # noqa: F401 - loaded before the clock starts
import torch  # noqa: F401 - loaded before the clock starts

import ltp_pipeline
from ltp_pipeline.results.read_write import to_json


def main() -> None:
    """Print a line of JSON."""
    path, data, out, compression, batch = sys.argv[1:]
    begin = time.monotonic()
    ltp_pipeline.import_model(path)
    import_seconds = time.monotonic() - begin
    result = ltp_pipeline.run(
        path,
        out=out,
        data={"path": data, "scale": 1 / 255, "mean": [0.5], "std": [0.25]},
        budget={"target_compression": float(compression)},
        train={
            "epochs": 1,
            "finetune_epochs": 1,
            "batch_size": int(batch),
            "lr": 0.003,
            "skip_label_check": True,  # the network is untrained
        },
        baseline={"mode": "none"},
    )
    print(json.dumps({"import": import_seconds, "report": to_json(result.report)}))


if __name__ == "__main__":
    main()
