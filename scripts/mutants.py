"""Count the small changes of the code that the tests notice: `make mutants`.

    python scripts/mutants.py [--only PREFIX ...] [--share 0.1] [--seed N] [--again] [--out FILE]

cosmic-ray changes an operator, a comparison, a number, a decorator or a loop, one at a time and not
in annotations. Changes are made in a copy of the tree. Tests first run without a change, to record
which of them run which line. Then a process is forked for each change. It has loaded everything
that does not depend on the module, and runs the tests of the line until one fails. Tests in the
module's own file run first. `--share` selects a sample. `--again` repeats the changes that survived
in FILE, after tests were added. Needs the extra `mutation`.
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

from mutant_places import Place, change_source, describe_change, find_statement, iter_places

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
# Tests that must notice a change, by module.
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
# Plugins of pytest; the second one collects garbage for longer than tests take.
DISABLED_PLUGINS = ("no:cacheprovider", "no:unraisableexception")
OPTIONS = (
    "-x",
    "-q",
    "--assert=plain",
    *(w for name in DISABLED_PLUGINS for w in ("-p", name)),
    "-m",
    "not slow and not long",
)
# A change is endless after this multiple of the processor time of the tests without a change.
SLOWER = 5
MEMORY = 12 * 2**30  # bytes of address space; torch alone needs some of them


def main() -> None:
    """Try the changes of all selected modules and write what survived."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=[""],
        metavar="PREFIX",
        help="change only modules whose paths begin with a prefix",
    )
    parser.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="fraction of the changes of each module to try; default: 1",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample; default: 0")
    parser.add_argument(
        "--again", action="store_true", help="try the changes that survived in the results file"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "benchmarks" / "results" / "mutants.json",
        help="results file",
    )
    options = parser.parse_args()
    out = options.out.resolve()
    results = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    with tempfile.TemporaryDirectory(prefix="ltp-mutants-") as folder:
        scratch = Path(folder)
        commit = enter_copy(scratch)
        all_modules: dict[str, tuple[str, ...]] = {}
        for glob, tests in TESTS.items():
            paths = sorted(Path().glob(glob))
            if not paths or not all(any(Path().glob(test)) for test in tests):
                sys.exit(f"{glob}: no file matches this pattern or one of its tests")
            all_modules |= {path.as_posix(): tests for path in paths}
        modules = {
            name: tests
            for name, tests in all_modules.items()
            if name.startswith(tuple(options.only))
        }
        coverage = {
            tests: run_in_child(record_coverage, list(modules), tests, scratch)
            for tests in dict.fromkeys(modules.values())
        }
        for name, tests in modules.items():
            places = list(iter_places(Path(name).read_text(encoding="utf-8")))
            generator = random.Random(f"{options.seed} {name}")  # noqa: S311 - not for security
            chosen = generator.sample(places, round(options.share * len(places)))
            before = {"seed": options.seed, "killed": 0, "timeouts": 0}
            if options.again:
                before = results[name]
                chosen = [Place(*survivor[:3]) for survivor in before["survivors"]]
            counts = run_in_child(try_changes, Path(name), chosen, coverage[tests], scratch)
            sums = {key: before[key] + counts[key] for key in ("killed", "timeouts")}
            results[name] = {
                "commit": commit,
                "seed": before["seed"],
                "places": len(places),
                **counts,
                **sums,
            }
            out.write_text(
                json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
            summary = {key: value for key, value in results[name].items() if key != "survivors"}
            print(name, summary, flush=True)


def enter_copy(scratch: Path) -> str:
    """Copy the tree, enter the copy, load the libraries and return the commit of the tree."""

    def run_git(*words: str) -> str:
        return subprocess.run(
            ["git", *words],  # noqa: S607 - git is on the PATH
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    for name in run_git("ls-files", "--cached", "--others", "--exclude-standard").splitlines():
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
    # Workers share a finished run, and so do all changes.
    os.environ["PYTEST_XDIST_WORKER"] = "gw0"
    for library in LIBRARIES:
        importlib.import_module(library)
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.generate)  # the first failure is enough
    settings.register_profile(
        "mutants", database=None, derandomize=True, deadline=None, phases=phases
    )
    settings.load_profile("mutants")
    return run_git("rev-parse", "--short=9", "HEAD")


def run_in_child(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function from a forked process, which discards what it loads."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            with open(writing, "w", encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor
                json.dump(function(*arguments), pipe)
        except BaseException:  # noqa: BLE001 - only the parent may continue
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor
        content = pipe.read()
    os.waitpid(child, 0)
    return json.loads(content or sys.exit("the process has no result"))


def record_coverage(modules: list[str], globs: tuple[str, ...], scratch: Path) -> dict[str, Any]:
    """Run the tests without a change and record their times and the lines that they run.

    Args:
        modules: Paths of the modules.
        globs: Patterns of the test files.
        scratch: Folder for temporary files.

    Returns:
        Processor time by test, and tests by line of each module.
    """
    import coverage
    import pytest

    tests = [path.as_posix() for glob in globs for path in sorted(Path().glob(glob))]
    sources = {name: str(Path(name).resolve()) for name in modules}
    measured = coverage.Coverage(include=[*sources.values()], data_file=None, config_file=False)
    seconds: dict[str, float] = {}

    class TestRecorder:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            seconds[nodeid] = -time.process_time()
            measured.switch_context(nodeid)

        def pytest_runtest_logfinish(self, nodeid: str) -> None:
            seconds[nodeid] += time.process_time()
            measured.switch_context("")

    measured.start()
    code = pytest.main(
        [*OPTIONS, f"--basetemp={scratch}/tests/gw0", *tests], plugins=[TestRecorder()]
    )
    measured.stop()
    if code:
        raise SystemExit("the tests fail without a change")
    data = measured.get_data()
    return {
        "seconds": seconds,
        "tests": {name: data.contexts_by_lineno(path) for name, path in sources.items()},
    }


def try_changes(
    path: Path, chosen: list[Place], coverage: dict[str, Any], scratch: Path
) -> dict[str, Any]:
    """Try changes of a module and return the counts of results and the changes that survived.

    Args:
        path: Path of the module.
        chosen: Places of the changes.
        coverage: Result of `record_coverage`.
        scratch: Folder for temporary files.
    """
    load_other_modules(path)
    gc.freeze()
    module = path.parent if path.stem == "__init__" else path.with_suffix("")
    own = Path("tests", "unit", module.parent, f"test_{module.name}.py").as_posix()
    seconds = dict(
        sorted(coverage["seconds"].items(), key=lambda item: (not item[0].startswith(own), item[1]))
    )
    tests_of_line = coverage["tests"][path.as_posix()]
    source, results, survivors = path.read_text(encoding="utf-8"), Counter[str](), []
    for place in sorted(chosen):
        code = change_source(source, place)
        if code is None:
            continue
        ran = {
            name
            for line in find_statement(source, place.line)
            for name in tests_of_line.get(str(line), ())
        }
        # A line with the name "" runs when the module is imported, so all tests depend on it.
        selected = [name for name in seconds if name in ran or "" in ran]
        path.write_text(code, encoding="utf-8")
        limit = round(SLOWER * sum(seconds[name] for name in selected) + 20)
        result = run_tests(selected, scratch, limit) if selected else "survived"
        results[result] += 1
        if result == "survived":
            change = describe_change(source, code)
            survivors.append([*place, change])
            print(f"{path}:{place.line}: {change}", flush=True)
    path.write_text(source, encoding="utf-8")
    return {"killed": results["killed"], "timeouts": results["timeout"], "survivors": survivors}


def load_other_modules(path: Path) -> None:
    """Import the modules of the package and of tests/support that do not need a module."""

    def name_module(file: Path) -> str:
        top, *rest = file.with_suffix("").parts
        return ".".join((FOLDERS.get(top, top), *rest)).removesuffix(".__init__")

    sys.modules[name_module(path)] = None  # type: ignore[assignment] # so that importing it fails
    for folder in (*FOLDERS, "tests/support"):
        for file in sorted(Path(folder).rglob("*.py")):
            if file.stem != "__main__":
                with suppress(ImportError):
                    importlib.import_module(name_module(file))
    del sys.modules[name_module(path)]


def run_tests(names: list[str], scratch: Path, seconds: int) -> str:
    """Run tests in a forked process and return "killed", "survived" or "timeout".

    Args:
        names: Names of the tests, in their order.
        scratch: Folder for temporary files.
        seconds: Limit of the processor time.
    """
    import pytest

    class TestSelection:
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
            items[:] = sorted(
                (i for i in items if i.nodeid in names), key=lambda item: names.index(item.nodeid)
            )

    if (child := os.fork()) == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.alarm(20 * seconds)  # wall time, to which other programs contribute
        code = 3
        with (
            suppress(BaseException),
            Path(os.devnull).open("w") as nowhere,
            redirect_stdout(nowhere),
        ):
            files = dict.fromkeys(name.partition("::")[0] for name in names)
            code = pytest.main(
                [*OPTIONS, f"--basetemp={scratch}/tests/gw0", *files], plugins=[TestSelection()]
            )
        os._exit(code)
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that the tests started
    if os.WIFSIGNALED(status):
        return (
            "timeout"
            if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL, signal.SIGALRM)
            else "killed"
        )
    return "killed" if os.WEXITSTATUS(status) else "survived"


if __name__ == "__main__":
    main()
