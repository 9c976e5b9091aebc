"""Images of other sizes than the model's: fitted, warned of, or rejected with advice that works."""

from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from tests.cli.conftest import Run, damage
from ttc.cli.app import app
from ttc.errors import TTCError

OWN = """
import torch
def net(num_classes=3):
    body = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    return torch.nn.Sequential(*body, torch.nn.Linear(4, num_classes))
"""


def test_the_advice_of_an_error_works(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(folder)
    monkeypatch.chdir(tmp_path)
    Path("sizeless.py").write_text(OWN)
    words = ["adapt", "sizeless:net", str(folder)]
    with pytest.raises(TTCError, match=r"differ in size .* input size of sizeless:net is not known: .* --size 224"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not Path("adapted").exists()
    assert CliRunner().invoke(app, [*words, "--size", "32"]).exit_code == 1  # two files are skipped


def test_images_far_from_the_models_size_are_warned_of(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    for i in range(4):
        Image.new("RGB", (12, 9), (60 * i, 0, 0)).save(tmp_path / "tiny" / f"{i}.png")
    output = run(tmp_path / "tiny")
    assert "warning: the images have about 12 x 9 pixels and are resized to 32 x 32" in output
    assert output.startswith("0 ")
    assert "warning" not in run(tmp_path / "tiny", "--size", 9, "--out", "small")
    assert "warning" not in run(folder)
