"""Write the table of docs/formats.md: which tool reads which format, as measured here.

Rows of tools that are not installed stay as they are; the extra `interop` has them all.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the measuring is the test's own

from tests.integration import test_interoperability as measured  # noqa: E402


def table() -> str:
    """The rows, one tool each."""
    page = measured.PAGE.read_text(encoding="utf-8").split(measured.BEGIN)[1]
    before = measured.rows() if page.count("|---") else {}
    lines = [f"| tool | version | {' | '.join(measured.FORMATS)} |", "|---" * (2 + len(measured.FORMATS)) + "|"]
    for tool, (package, _) in measured.TOOLS.items():
        version = measured.version(package)
        row = {name: measured.measure(tool, name) for name in measured.FORMATS} if version else before.get(tool, {})
        cells = [version or row.get("version", "not measured"), *(row.get(name, "?") for name in measured.FORMATS)]
        lines.append(f"| {tool} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    text = measured.PAGE.read_text(encoding="utf-8")
    head, rest = text.split(measured.BEGIN)
    tail = rest.split(measured.END)[1]
    measured.PAGE.write_text(f"{head}{measured.BEGIN}\n{table()}\n{measured.END}{tail}", encoding="utf-8")
    print(f"wrote {measured.PAGE.relative_to(ROOT)}")
