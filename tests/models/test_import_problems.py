"""Missing is told from broken."""

from pathlib import Path

import pytest
import torch

from ttc.models.import_problems import explain, find_import_problem


def test_a_package_imports_is_missing_or_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fine_package.py").touch()
    (tmp_path / "broken_package.py").write_text("raise RuntimeError('undefined symbol\\nmore')")
    (tmp_path / "silent_package.py").write_text("raise RuntimeError")
    (tmp_path / "needy_package.py").write_text("import absent_package")
    assert find_import_problem("fine_package", "fine") is None
    assert find_import_problem("absent_package", "absent>=1") == (False, "not installed", "pip install 'absent>=1'")
    needy = (True, "it needs absent_package, which is not installed", "pip install 'absent_package'")
    assert find_import_problem("needy_package", "needy") == needy
    broken = (True, "undefined symbol", "pip install --force-reinstall 'broken>=2'")
    assert find_import_problem("broken_package", "broken>=2") == broken
    found = find_import_problem("silent_package", "silent")
    assert found is not None
    assert found.reason == "RuntimeError"


def test_the_torchvision_of_this_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    error = RuntimeError("operator torchvision::nms does not exist")
    advice = "install torchvision 0.28, the build for torch 2.13.0+cpu, from the index that torch came from"
    assert explain("torchvision", "torchvision>=0.19", error) == (True, str(error), advice)
    through = f"it imports torchvision, which is broken: {error}"
    assert explain("timm", "timm>=1.0", error) == (True, through, advice)  # timm itself is fine
    monkeypatch.setattr(torch, "__version__", "3.0.0a1")
    assert explain("torchvision", "", error).advice.startswith("install torchvision, the build for torch 3.0.0a1")
