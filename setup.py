"""Build the library of sparse kernels with the package, where there is a C++ compiler; all else is in pyproject.toml.

The package works without it, but for what needs the kernels: `ltp-pipeline sparse-ops` says whether it is there.
"""

import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

ROOT = Path(__file__).parent
FOLDER = ("exporters", "sparse_ops")


def load(name: str, path: Path) -> ModuleType:
    """A module of the package, which is not installed yet: its parents are empty but for where their modules are."""
    package = sys.modules.setdefault("ltp_pipeline", ModuleType("ltp_pipeline"))
    package.__path__ = [str(ROOT / "pipeline")]
    spec = spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - the file is there
    assert spec.loader is not None  # noqa: S101
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


library = load("ltp_pipeline.exporters.sparse_ops.library", ROOT.joinpath(*FOLDER, "library.py"))
errors = sys.modules["ltp_pipeline.errors"]  # which it has imported


class BuildKernels(Command):
    """A step of every build; one that fails leaves the library out and says so."""

    description = "build the library of sparse kernels"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = []
    build_lib: str | None
    editable_mode = False

    def initialize_options(self) -> None:
        self.build_lib = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        target = Path(self._target())
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            library.build_library(target)
        except (errors.InputError, OSError) as error:
            target.unlink(missing_ok=True)  # of an earlier build
            print(
                f"warning: the sparse kernels are not built, the package works without: {error}",
                file=sys.stderr,
            )

    def get_outputs(self) -> list[str]:
        target = self._target()
        return [target] if Path(target).is_file() else []

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return [str(path.relative_to(ROOT)) for path in sorted(library.SOURCE.iterdir())]

    def _target(self) -> str:
        if self.editable_mode:
            return str(ROOT.joinpath(*FOLDER, library.FILE_NAME))
        return str(Path(self.build_lib or "", "ltp_pipeline", *FOLDER, library.FILE_NAME))


class Build(build):
    """The usual steps, then this one."""

    sub_commands = [*build.sub_commands, ("build_kernels", None)]  # noqa: RUF012 - setuptools has it as a list


class Package(Distribution):
    """Is for one platform where the library can be built."""

    def has_ext_modules(self) -> bool:
        return shutil.which(library.make_build_command(Path())[0]) is not None


class Wheel(bdist_wheel):
    """Is for every Python 3: the library does not link against Python."""

    def get_tag(self) -> tuple[str, str, str]:
        tags: tuple[str, str, str] = super().get_tag()
        return tags if self.root_is_pure else ("py3", "none", tags[2])


commands = {"build": Build, "build_kernels": BuildKernels, "bdist_wheel": Wheel}
setup(distclass=Package, cmdclass=commands)
