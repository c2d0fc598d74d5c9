"""What the programs of the campaign share: their options, the loop over cases, and the results."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support import children

SHOWN = 1500  # characters of what a case said
PARTS = 20  # after each of which is told how far it is


class Tried(NamedTuple):
    """A case of a number, what was done to it, the command it was given to, how that ended, and what is wrong."""

    number: int
    name: str
    verb: str
    ended: children.Ended
    problem: str | None


class Asked(NamedTuple):
    """What to try: cases of a seed, in a folder that is removed, or `keep` for one that stays."""

    seed: int
    numbers: range
    scratch: Path
    keep: Path | None
    options: argparse.Namespace


def options(doc: str | None, count: int) -> argparse.ArgumentParser:
    """The options of every program."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument(
        "--only", type=int, help="repeat one case, show what it says, and keep its files"
    )
    parser.add_argument("--out", type=Path, help="where to write the results")
    return parser


def main(
    name: str, parser: argparse.ArgumentParser, tried: Callable[[Asked], Iterator[Tried]]
) -> None:
    """Print findings as they are met, write the results, and end with 1 where there are findings."""
    asked = parser.parse_args()
    one = asked.only is not None
    keep = Path(tempfile.mkdtemp(prefix="ltp-case-")) if one else None
    numbers = range(asked.only, asked.only + 1) if one else range(asked.count)
    exits: dict[str, Counter[str]] = {}
    slowest, largest = dict[str, float](), dict[str, int]()
    findings, told = list[str](), 0
    with tempfile.TemporaryDirectory(prefix="ltp-campaign-") as scratch:
        for case in tried(Asked(asked.seed, numbers, Path(scratch), keep, asked)):
            verb, ended = case.verb, case.ended
            exits.setdefault(verb, Counter())[str(ended.code)] += 1
            slowest[verb] = max(slowest.get(verb, 0.0), round(ended.seconds, 1))
            largest[verb] = max(largest.get(verb, 0), ended.megabytes)
            if one:
                print(
                    f"{verb} {case.name}\n{ended.said}{ended.code} after {ended.seconds:.1f} s; {keep}"
                )
            if case.problem is not None:
                findings.append(f"{case.number}: {verb} {case.name}: {case.problem}")
                print(f"{findings[-1]}\n{ended.said[-SHOWN:]}", flush=True)
            done = numbers.index(case.number) * PARTS // len(numbers)
            if done > told:
                told = done
                print(
                    f"{name}: {done / PARTS:.0%}, {len(findings)} findings",
                    file=sys.stderr,
                    flush=True,
                )
    results = {
        "class": name,
        "seed": asked.seed,
        "cases": len(numbers),
        "exits": {verb: dict(sorted(found.items())) for verb, found in exits.items()},
        "seconds_at_most": slowest,
        "megabytes_at_most": largest,
        "findings": findings,
    }
    text = json.dumps(results, indent=2)
    print(text)
    if asked.out is not None:
        asked.out.write_text(text + "\n", encoding="utf-8")
    sys.exit(bool(findings))
