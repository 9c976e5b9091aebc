"""The public names of the package: complete, imported on first use, and nothing else."""

import subprocess
import sys
from importlib import import_module

import pytest

import ttc


@pytest.mark.parametrize("name", ttc.__all__)
def test_a_public_name_is_the_one_of_its_package(name: str) -> None:
    home = ttc._DEFINED_IN.get(name, "ttc.errors")
    assert getattr(ttc, name) is getattr(import_module(home), name)


@pytest.mark.parametrize("name", ttc._SUBPACKAGES)
def test_a_subpackage_is_imported_on_first_use(name: str) -> None:
    assert getattr(ttc, name) is import_module(f"ttc.{name}")


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, ttc; dir(ttc); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'ttc' has no attribute 'adpat'"):
        getattr(ttc, "adpat")  # noqa: B009
