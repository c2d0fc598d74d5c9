"""Measure which tool reads which format, and write the tables of docs/reference/file-formats.md.

Rows of tools that are not installed do not change; the extra `interop` installs all tools.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the test measures

from tests.integration import test_interoperability as measurements  # noqa: E402


def make_table(begin: str) -> str:
    """Return a table with a row for each tool.

    Args:
        begin: Mark before the table in the page.
    """
    formats = measurements.TABLES[begin]
    page = measurements.PAGE.read_text(encoding="utf-8").split(begin)[1]
    before = measurements.rows(begin) if "|---" in page.split(measurements.END)[0] else {}
    lines = [f"| tool | version | {' | '.join(formats)} |", "|---" * (2 + len(formats)) + "|"]
    for tool, (package, _) in measurements.TOOLS.items():
        version = measurements.version(package)
        row = (
            {name: measurements.measure(tool, name) for name in formats}
            if version
            else before.get(tool, {})
        )
        cells = [
            version or row.get("version", "not measured"),
            *(row.get(name, "?") for name in formats),
        ]
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    for begin in measurements.TABLES:
        head, rest = measurements.PAGE.read_text(encoding="utf-8").split(begin)
        tail = rest.split(measurements.END, 1)[1]
        measurements.PAGE.write_text(
            f"{head}{begin}\n{make_table(begin)}\n{measurements.END}{tail}", encoding="utf-8"
        )
    print(f"wrote {measurements.PAGE.relative_to(ROOT)}")
