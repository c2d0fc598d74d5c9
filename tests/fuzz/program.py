"""Options, loop and results that all fuzzers share."""

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

SHOWN = 1500  # characters of a case's output
PARTS = 20  # progress messages


class TriedCase(NamedTuple):
    """A case that was tried: number, what was done, command, how it ended, and what is wrong."""

    number: int
    name: str
    verb: str
    ended: children.Ended
    problem: str | None


class FuzzRequest(NamedTuple):
    """Cases of a seed to try, in a folder that is removed, or in `keep`."""

    seed: int
    numbers: range
    scratch: Path
    keep: Path | None
    options: argparse.Namespace


def make_parser(doc: str | None, count: int) -> argparse.ArgumentParser:
    """Return a parser with the options of every fuzzer."""
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


def run_program(
    name: str, parser: argparse.ArgumentParser, tried: Callable[[FuzzRequest], Iterator[TriedCase]]
) -> None:
    """Try the cases, print and write the failures, and exit with 1 if there are any."""
    asked = parser.parse_args()
    is_single = asked.only is not None
    keep = Path(tempfile.mkdtemp(prefix="ltp-case-")) if is_single else None
    numbers = range(asked.only, asked.only + 1) if is_single else range(asked.count)
    exits: dict[str, Counter[str]] = {}
    slowest, largest = dict[str, float](), dict[str, int]()
    findings, told = list[str](), 0
    with tempfile.TemporaryDirectory(prefix="ltp-campaign-") as scratch:
        for case in tried(FuzzRequest(asked.seed, numbers, Path(scratch), keep, asked)):
            verb, ended = case.verb, case.ended
            exits.setdefault(verb, Counter())[str(ended.code)] += 1
            slowest[verb] = max(slowest.get(verb, 0.0), round(ended.seconds, 1))
            largest[verb] = max(largest.get(verb, 0), ended.megabytes)
            if is_single:
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
