"""Build the library of sparse operators with the package; pyproject.toml has everything else.

Without a C++ compiler, the package is installed without the library, and `ltp-pipeline sparse-ops`
says so.
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
    """Load a module of the package, whose parents are empty because it is not installed yet.

    Args:
        name: Full name of the module.
        path: File of the module.
    """
    package = sys.modules.setdefault("ltp_pipeline", ModuleType("ltp_pipeline"))
    package.__path__ = [str(ROOT / "pipeline")]
    spec = spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - the file is there
    assert spec.loader is not None  # noqa: S101
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


library = load("ltp_pipeline.exporters.sparse_ops.library", ROOT.joinpath(*FOLDER, "library.py"))
errors = sys.modules["ltp_pipeline.errors"]  # the library module has imported it


class BuildKernels(Command):
    """Build step for the library; if it fails, it prints a warning and the build goes on."""

    description = "build the library of sparse operators"
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
            target.unlink(missing_ok=True)  # may be of an earlier build
            print(
                f"warning: the sparse operators were not built, the package works without: {error}",
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
    """The usual build steps and that of the library."""

    sub_commands = [*build.sub_commands, ("build_kernels", None)]  # noqa: RUF012 - setuptools has it as a list


class Package(Distribution):
    """A distribution for one platform if the library can be built."""

    def has_ext_modules(self) -> bool:
        return shutil.which(library.make_build_command(Path())[0]) is not None


class Wheel(bdist_wheel):
    """A wheel for every Python 3, because the library does not link against Python."""

    def get_tag(self) -> tuple[str, str, str]:
        tags: tuple[str, str, str] = super().get_tag()
        return tags if self.root_is_pure else ("py3", "none", tags[2])


commands = {"build": Build, "build_kernels": BuildKernels, "bdist_wheel": Wheel}
setup(distclass=Package, cmdclass=commands)
