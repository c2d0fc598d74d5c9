"""Write the tables of docs/reference/file-formats.md: which tool reads which format, as measured here.

Rows of tools that are not installed stay as they are; the extra `interop` has them all.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the measuring is the test's own

from tests.integration import test_interoperability as measured  # noqa: E402


def table(begin: str) -> str:
    """The rows, one tool each."""
    formats, page = (
        measured.TABLES[begin],
        measured.PAGE.read_text(encoding="utf-8").split(begin)[1],
    )
    before = measured.rows(begin) if "|---" in page.split(measured.END)[0] else {}
    lines = [f"| tool | version | {' | '.join(formats)} |", "|---" * (2 + len(formats)) + "|"]
    for tool, (package, _) in measured.TOOLS.items():
        version = measured.version(package)
        row = (
            {name: measured.measure(tool, name) for name in formats}
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
    for begin in measured.TABLES:
        head, rest = measured.PAGE.read_text(encoding="utf-8").split(begin)
        tail = rest.split(measured.END, 1)[1]
        measured.PAGE.write_text(
            f"{head}{begin}\n{table(begin)}\n{measured.END}{tail}", encoding="utf-8"
        )
    print(f"wrote {measured.PAGE.relative_to(ROOT)}")
