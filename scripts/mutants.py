"""How many small changes of the code the tests notice: `make mutants`.

    python scripts/mutants.py [--only PREFIX ...] [--share 0.1] [--seed N] [--again] [--out FILE]

The changes are those of cosmic-ray (an operator, a comparison, a number, a decorator or a loop, one
at a time), but for those in annotations. They are made in a copy of the tree. Tests run once
without a change, to know which of them run which line. Then, for each change, a process is forked
that has loaded all that does not depend on the module; it runs the tests of the line, those in the
module's own file first, until one fails. `--share` takes a sample; `--again` tries what survived in
FILE, after tests were added. Needs the extra `mutation`.
"""

import argparse
import gc
import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from mutant_places import Place, changed, in_words, places, statement

ROOT = Path(__file__).resolve().parent.parent
LEARN = (
    "tests/unit/stages/learn_thresholds/test_*.py",
    "tests/unit/stages/test_learn_thresholds.py",
)
GATE = (
    "tests/unit/pipeline/gates/test_*.py",
    "tests/unit/pipeline/results/test_*.py",
    "tests/unit/stages/measure/test_again.py",
    "tests/integration/test_gate.py",
)
# Modules, and the tests that are to notice a change of them
TESTS = {
    "stages/learn_thresholds/*.py": LEARN,
    "pipeline/gates/*.py": GATE,
    "pipeline/results/complete.py": GATE,
    "pipeline/results/consistency.py": GATE,
    "stages/measure/again.py": GATE,
}
FOLDERS = {
    "pipeline": "ltp_pipeline",
    "stages": "ltp_pipeline.stages",
    "exporters": "ltp_pipeline.exporters",
}
LIBRARIES = ("torch", "onnx", "onnxruntime", "onnxsim", "matplotlib", "PIL", "hypothesis", "pytest")
LEFT_OUT = (
    "no:cacheprovider",
    "no:unraisableexception",
)  # the second collects garbage for longer than tests take
OPTIONS = (
    "-x",
    "-q",
    "--assert=plain",
    *(w for name in LEFT_OUT for w in ("-p", name)),
    "-m",
    "not slow and not long",
)
SLOWER = (
    5  # times the processor time that the tests took without a change: then it counts as endless
)
MEMORY = 12 * 2**30  # bytes of addresses, of which torch alone takes some


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", default=[""], metavar="PREFIX", help="modules whose paths begin so"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the changes of each module")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument(
        "--again", action="store_true", help="try what survived in the results file"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks" / "results" / "mutants.json"
    )
    asked = parser.parse_args()
    out = asked.out.resolve()
    known = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    with tempfile.TemporaryDirectory(prefix="ltp-mutants-") as folder:
        scratch = Path(folder)
        commit = enter_copy(scratch)
        all_modules: dict[str, tuple[str, ...]] = {}
        for glob, tests in TESTS.items():
            paths = sorted(Path().glob(glob))
            if not paths or not all(any(Path().glob(test)) for test in tests):
                sys.exit(f"{glob}: it, or one of its tests, matches no file")
            all_modules |= {path.as_posix(): tests for path in paths}
        modules = {
            name: tests for name, tests in all_modules.items() if name.startswith(tuple(asked.only))
        }
        watched = {
            tests: in_child(watch, list(modules), tests, scratch)
            for tests in dict.fromkeys(modules.values())
        }
        for name, tests in modules.items():
            every = list(places(Path(name).read_text(encoding="utf-8")))
            generator = random.Random(f"{asked.seed} {name}")  # noqa: S311 - nothing secret
            drawn = generator.sample(every, round(asked.share * len(every)))
            before = (
                known[name] if asked.again else {"seed": asked.seed, "killed": 0, "timeouts": 0}
            )
            chosen = [Place(*one[:3]) for one in before["survivors"]] if asked.again else drawn
            found = in_child(counted, Path(name), chosen, watched[tests], scratch)
            sums = {key: before[key] + found[key] for key in ("killed", "timeouts")}
            known[name] = {
                "commit": commit,
                "seed": before["seed"],
                "places": len(every),
                **found,
                **sums,
            }
            out.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(
                name,
                {key: value for key, value in known[name].items() if key != "survivors"},
                flush=True,
            )


def enter_copy(scratch: Path) -> str:
    """Work in a copy of the tree from here on, with all loaded that every change needs; the commit it is of."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words],  # noqa: S607 - git is on the PATH
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    for name in git("ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        target = scratch / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    (scratch / "tests").mkdir()
    os.chdir(scratch / "tree")
    subprocess.run([sys.executable, "scripts/link_sources.py"], check=True)
    sys.path[:0] = paths = [str(Path(".static").resolve()), str(Path.cwd())]
    sys.dont_write_bytecode = True
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["PYTEST_XDIST_WORKER"] = (
        "gw0"  # workers share one finished run, and so do all changes
    )
    for library in LIBRARIES:
        importlib.import_module(library)
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.generate)  # the first failure will do
    settings.register_profile(
        "mutants", database=None, derandomize=True, deadline=None, phases=phases
    )
    settings.load_profile("mutants")
    return git("rev-parse", "--short=9", "HEAD")


def in_child(work: Callable[..., Any], *given: Any) -> Any:
    """What a function gives in a process of its own, which what it loads does not outlive."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            with open(writing, "w", encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor
                json.dump(work(*given), pipe)
        except BaseException:  # noqa: BLE001 - what follows is for the other process alone
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor
        found = pipe.read()
    os.waitpid(child, 0)
    return json.loads(found or sys.exit("no results"))


def watch(modules: list[str], globs: tuple[str, ...], scratch: Path) -> dict[str, Any]:
    """Run the tests without a change: how long each takes, and which run each line of the modules."""
    import coverage
    import pytest

    tests = [path.as_posix() for glob in globs for path in sorted(Path().glob(glob))]
    sources = {name: str(Path(name).resolve()) for name in modules}
    measured = coverage.Coverage(include=[*sources.values()], data_file=None, config_file=False)
    seconds: dict[str, float] = {}

    class Watch:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            seconds[nodeid] = -time.process_time()
            measured.switch_context(nodeid)

        def pytest_runtest_logfinish(self, nodeid: str) -> None:
            seconds[nodeid] += time.process_time()
            measured.switch_context("")

    measured.start()
    code = pytest.main([*OPTIONS, f"--basetemp={scratch}/tests/gw0", *tests], plugins=[Watch()])
    measured.stop()
    if code:
        raise SystemExit("the tests fail without any change")
    data = measured.get_data()
    return {
        "seconds": seconds,
        "tests": {name: data.contexts_by_lineno(path) for name, path in sources.items()},
    }


def counted(
    path: Path, chosen: list[Place], watched: dict[str, Any], scratch: Path
) -> dict[str, Any]:
    """Try changes of a module; what survived with the change in words."""
    load_all_but(path)
    gc.freeze()
    module = path.parent if path.stem == "__init__" else path.with_suffix("")
    own = Path("tests", "unit", module.parent, f"test_{module.name}.py").as_posix()
    seconds = dict(
        sorted(watched["seconds"].items(), key=lambda item: (not item[0].startswith(own), item[1]))
    )
    of_line = watched["tests"][path.as_posix()]
    source, results, survivors = path.read_text(encoding="utf-8"), Counter[str](), []
    for place in sorted(chosen):
        if (code := changed(source, place)) is None:
            continue
        ran = {
            name for line in statement(source, place.line) for name in of_line.get(str(line), ())
        }
        wanted = [
            name for name in seconds if name in ran or "" in ran
        ]  # "": run by the import, so of any test
        path.write_text(code, encoding="utf-8")
        limit = round(SLOWER * sum(seconds[name] for name in wanted) + 20)
        result = run_tests(wanted, scratch, limit) if wanted else "survived"
        results[result] += 1
        if result == "survived":
            told = in_words(source, code)
            survivors.append([*place, told])
            print(f"{path}:{place.line}: {told}", flush=True)
    path.write_text(source, encoding="utf-8")
    return {"killed": results["killed"], "timeouts": results["timeout"], "survivors": survivors}


def load_all_but(path: Path) -> None:
    """Import all of the package, and of what helps the tests, that does not need one module."""

    def name(file: Path) -> str:
        top, *rest = file.with_suffix("").parts
        return ".".join((FOLDERS.get(top, top), *rest)).removesuffix(".__init__")

    sys.modules[name(path)] = None  # type: ignore[assignment] # so that importing it fails
    for folder in (*FOLDERS, "tests/support"):
        for file in sorted(Path(folder).rglob("*.py")):
            if file.stem != "__main__":
                with suppress(ImportError):
                    importlib.import_module(name(file))
    del sys.modules[name(path)]


def run_tests(names: list[str], scratch: Path, seconds: int) -> str:
    """Whether a change is killed by tests, survived them, or makes them endless."""
    import pytest

    class Chosen:
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            items[:] = sorted(
                (i for i in items if i.nodeid in names), key=lambda item: names.index(item.nodeid)
            )

    if (child := os.fork()) == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.alarm(20 * seconds)  # of waiting; other work on the machine counts too
        code = 3
        with (
            suppress(BaseException),
            Path(os.devnull).open("w") as nowhere,
            redirect_stdout(nowhere),
        ):
            files = dict.fromkeys(name.partition("::")[0] for name in names)
            code = pytest.main(
                [*OPTIONS, f"--basetemp={scratch}/tests/gw0", *files], plugins=[Chosen()]
            )
        os._exit(code)
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what it has started
    if os.WIFSIGNALED(status):
        return (
            "timeout"
            if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL, signal.SIGALRM)
            else "killed"
        )
    return "killed" if os.WEXITSTATUS(status) else "survived"


if __name__ == "__main__":
    main()
