"""``ttc corrupt``, as a user runs it."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ttc.cli.app import main
from ttc.corruptions import CORRUPTIONS
from ttc.corruptions.frost_textures import FILES


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["ttc", "corrupt", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    rows = np.linspace(0, 255, 120)[:, None, None] * np.ones((120, 100, 3))
    path = tmp_path / "photos" / "photo.png"
    path.parent.mkdir()
    Image.fromarray(rows.astype(np.uint8)).save(path)
    return path


def test_folder_of_images(
    photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, photo.parent, out, "--corruptions", "noise, fog", "--severities", "3,1", "--size", 32) == 0
    made = sorted(p.relative_to(out).parts[:2] for p in out.rglob("*.JPEG"))
    noise = ("gaussian_noise", "shot_noise", "impulse_noise")
    assert made == sorted((c, s) for c in (*noise, "fog") for s in "13")
    assert f"{out}: 4 corruptions, severities 1, 3" in capsys.readouterr().out.replace("\n", "")


def test_an_unreadable_image_is_named_at_the_end(
    photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (photo.parent / "cut.png").write_bytes(photo.read_bytes()[:100])
    out = tmp_path / "out"
    assert run(monkeypatch, photo.parent, out, "--corruptions", "fog", "--severities", 5, "--size", 32) == 1
    assert (out / "fog" / "5" / "photo.JPEG").exists()
    assert "ttc: skipped cut.png: " in capsys.readouterr().err


def test_cifar_is_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    np.zeros((4, 3073), np.uint8).tofile(tmp_path / "bin" / "test_batch.bin")
    assert run(monkeypatch, tmp_path / "bin", tmp_path / "out", "--corruptions", "contrast", "--workers", 1) == 0
    assert np.load(tmp_path / "out" / "contrast.npy").shape == (20, 32, 32, 3)


def test_ctrl_c_says_how_to_resume(
    photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ttc.corruptions.imagenet_c.generate_imagenet_c", interrupted)
    assert run(monkeypatch, photo.parent, tmp_path / "out") == 130
    assert "interrupted; run the same command again to resume" in capsys.readouterr().err


def test_fetched_frost_is_used_and_named(
    photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTC_DATA", str(tmp_path / "data"))
    flags = ("--corruptions", "frost,fog", "--severities", 5, "--size", 32)
    assert run(monkeypatch, photo.parent, tmp_path / "before", *flags) == 0
    assert "2 corruptions with procedural frost, severities 5" in capsys.readouterr().out
    (tmp_path / "data" / "frost").mkdir(parents=True)
    for name in FILES:
        Image.new("RGB", (64, 48), (40, 200, 255)).save(tmp_path / "data" / "frost" / name)
    assert run(monkeypatch, photo.parent, tmp_path / "after", *flags) == 0
    assert "2 corruptions with own frost " in capsys.readouterr().out
    made = [(tmp_path / name / "frost" / "5" / "photo.JPEG").read_bytes() for name in ("before", "after")]
    assert made[0] != made[1]
    assert run(monkeypatch, photo.parent, tmp_path / "before", *flags) == 2
    assert "was started with frost procedural" in capsys.readouterr().err
    assert run(monkeypatch, photo.parent, tmp_path / "before", *flags, "--frost-dir", "procedural") == 0


def test_preview(photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "--preview", photo, tmp_path / "sheet.png", "--size", 32) == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        pixels = np.asarray(sheet)
    assert pixels.shape[0] > 15 * 160
    assert pixels.shape[1] > 5 * 160
    cells = {pixels[240 + row * 166 : 400 + row * 166, 216:376].tobytes() for row in range(len(CORRUPTIONS))}
    assert len(cells) == 15  # no two corruptions look the same


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("{photos}", "{out}", "--corruptions", "rain"), "unknown corruption 'rain'"),
        (("{photos}", "{out}", "--corruptions", "Fogg"), "unknown corruption 'Fogg' (did you mean 'fog'?)"),
        (("{photos}", "{out}", "--corruptions", "wether"), "(did you mean 'weather'?)"),
        (("{photos}", "{out}", "--severities", "5,6"), "severities must be numbers from 1 to 5"),
        (("{photos}", "{photos}/out"), "is inside the source"),
        (("{photos}/none", "{out}"), "does not exist"),
        (("{photos}", "{out}", "--size", "9"), "--size must be 0 or at least 16 pixels; got 9"),
        (("{photos}", "{out}", "--layout", "cifar-c"), "contains neither test_batch.bin nor test.bin"),
        (("--preview", "{photos}/none.png", "{out}.png"), "cannot be read as an image"),
        (("--preview", "{photos}/photo.png", "{out}"), "the preview must be a .png"),
    ],
)
def test_mistakes_are_one_sentence(
    photo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    sentence: str,
) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, *(word.format(photos=photo.parent, out=out) for word in words)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("ttc: ")
    assert sentence in captured.err
    assert captured.out == ""
    assert not out.exists()
