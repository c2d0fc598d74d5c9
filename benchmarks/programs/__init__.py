"""Programs that benchmarks start in processes of their own, by path, so that little is imported."""

from pathlib import Path

FOLDER = Path(__file__).parent
