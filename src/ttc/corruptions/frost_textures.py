"""Frost textures: deterministic procedural ones, or the original images from a folder."""

import math
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from ttc.errors import TTCError

# The original implementation never draws from the sixth file.
FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


class TextureTarget(NamedTuple):
    """The statistics that a procedural texture shares with an original image, measured on that image."""

    height: int
    width: int
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]
    luminance: tuple[float, float, float]  # percentiles 5, 50, 95
    slope: float  # of the radial power spectrum, in logarithms
    clouds: float  # fraction of the deviation in long waves, tuned so that pixels five apart differ as in the original


TEXTURE_TARGETS = (
    TextureTarget(600, 900, (78, 149, 166), (27, 16, 15), (102, 128, 163), -1.3, 0.78),
    TextureTarget(315, 560, (201, 205, 214), (21, 22, 23), (165, 208, 235), -1.7, 0.57),
    TextureTarget(350, 527, (138, 153, 165), (28, 28, 30), (102, 150, 196), -1.3, 0.58),
    TextureTarget(495, 660, (112, 123, 135), (44, 43, 42), (58, 117, 202), -1.9, 0.5),
)
_MAKING = Lock()
_DRAWN = (0, 1, 1, 2, 3)  # the second and third originals are the same image, which is therefore chosen twice as often


@lru_cache(maxsize=8)
def fit_textures(frost_dir: Path | None, size: float, height: int, width: int) -> tuple[Tensor, ...]:
    """Return the five textures to crop from, scaled by ``size`` and larger than the image: uint8 (3, h, w) each."""
    if frost_dir is None:
        textures = [procedural_textures()[i] for i in _DRAWN]
    else:
        textures = [_original(frost_dir / name) for name in FILES]
    return tuple(_fitted(torch.from_numpy(texture).permute(2, 0, 1), size, height, width) for texture in textures)


def _original(path: Path) -> NDArray[np.uint8]:
    try:
        with Image.open(path) as image:
            return np.array(image.convert("RGB"))
    except OSError as error:
        raise TTCError(
            f"frost_dir must contain {', '.join(FILES)}, but {path} cannot be read ({error.strerror or error}): "
            "add it, or omit frost_dir for procedural frost"
        ) from error


def _fitted(texture: Tensor, size: float, height: int, width: int) -> Tensor:
    """Scale the texture by ``size``, or more if the image is larger; bilinear, without anti-aliasing."""
    size = max(size, (height + 1) / texture.shape[1], (width + 1) / texture.shape[2])
    if size == 1:
        return texture.contiguous()
    target = [
        max(round(long * size), short + 1) for long, short in zip(texture.shape[1:], (height, width), strict=True)
    ]
    scaled = F.interpolate(texture[None].float(), target, mode="bilinear", align_corners=False)[0]
    return scaled.round_().to(torch.uint8)


def procedural_textures() -> tuple[NDArray[np.uint8], ...]:
    """Return the four procedural textures, uint8 (h, w, 3): crystals on clouds, with the originals' statistics."""
    with _MAKING:  # concurrent threads wait for the first one to make them
        return _made_textures()


@lru_cache(maxsize=1)
def _made_textures() -> tuple[NDArray[np.uint8], ...]:
    return tuple(_texture(target, np.random.default_rng(seed)) for seed, target in enumerate(TEXTURE_TARGETS))


def _texture(target: TextureTarget, rng: np.random.Generator) -> NDArray[np.uint8]:
    shape = (target.height, target.width)
    ground = _coloured(rng.standard_normal(shape), target.slope / 2)
    crystals = _bent(_crystals(target, rng), rng)
    field = _standardised(0.55 * ground + 0.45 * _standardised(crystals))
    clouds = _clouds(rng.standard_normal(shape))
    grain = rng.standard_normal((*shape, 3))

    def mixed() -> NDArray[np.float64]:
        return _with_percentiles(math.sqrt(1 - target.clouds**2) * field + target.clouds * clouds, target)

    for _ in range(3):  # reshaping the distribution changes the slope slightly: iterate
        field = _coloured(field, (target.slope - spectral_slope(mixed())) / 2)
    values = (0.96 * mixed()[:, :, None] + 0.04 * grain) / math.hypot(0.96, 0.04)
    return (np.array(target.mean) + np.array(target.deviation) * values).clip(0, 255).astype(np.uint8)


def _standardised(field: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((field - field.mean()) / field.std())


def _wave_number(height: int, width: int) -> NDArray[np.float64]:
    """Return the radial frequency of each ``rfft2`` coefficient in cycles per pixel; the mean gets the lowest one."""
    radius: NDArray[np.float64] = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    radius[0, 0] = 1 / max(height, width)
    return radius


def _coloured(field: NDArray[np.float64], power: float) -> NDArray[np.float64]:
    """Multiply the amplitude at wave number k by k^power and standardise."""
    height, width = field.shape
    spectrum = np.fft.rfft2(field) * np.maximum(_wave_number(height, width), 4 / max(height, width)) ** power
    return _standardised(np.fft.irfft2(spectrum, s=field.shape))


def _clouds(field: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keep the waves longer than about 150 pixels and standardise."""
    waves = np.fft.rfft2(field) * np.exp(-((150 * _wave_number(*field.shape)) ** 2))
    return _standardised(np.fft.irfft2(waves, s=field.shape))


def spectral_slope(field: NDArray[np.float64]) -> float:
    """Return the slope of log power against log frequency from 1/32 to 1/4 cycles per pixel, radially averaged."""
    height, width = field.shape
    window = np.hanning(height)[:, None] * np.hanning(width)
    power = np.abs(np.fft.rfft2((field - field.mean()) * window)) ** 2
    radius = _wave_number(height, width)
    edges = np.geomspace(1 / 32, 1 / 4, 13)
    ring = np.digitize(radius, edges)
    means = [math.log(power[ring == i].mean()) for i in range(1, len(edges))]
    centres = np.log(np.sqrt(edges[1:] * edges[:-1]))
    return float(np.polyfit(centres, means, 1)[0])


def _with_percentiles(field: NDArray[np.float64], target: TextureTarget) -> NDArray[np.float64]:
    """Transform the field monotonically to the relative percentiles 5, 50, 95 of the luminance, and standardise."""
    low, middle, high = np.percentile(field, (5, 50, 95))
    below, above = target.luminance[1] - target.luminance[0], target.luminance[2] - target.luminance[1]
    centred = field - middle
    bent = np.where(centred < 0, centred * below / (middle - low), centred * above / (high - middle))
    return _standardised(bent)


def _crystals(target: TextureTarget, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw anti-aliased needles with side branches at ±60° around random seeds: (h, w), added where they overlap."""
    fine = 2  # supersampling factor
    canvas = np.zeros((target.height, target.width))
    layers = 6
    for _ in range(layers):
        sheet = Image.new("L", (target.width * fine, target.height * fine))
        pen = ImageDraw.Draw(sheet)
        for _ in range(max(1, round(target.height * target.width / 2000 / layers))):
            start = rng.random(2) * (target.width, target.height)
            turn = rng.random() * 2 * math.pi
            for arm in range(int(rng.integers(4, 9))):
                length = 10 * 12 ** rng.random()
                angle = turn + arm * math.pi / 3 + rng.normal(0, 0.12)
                _needle(pen, rng, (float(start[0]), float(start[1])), angle, length, 1 + 2 * rng.random(), 2, fine)
        small = sheet.resize((target.width, target.height), Image.Resampling.BOX)
        canvas += np.asarray(small, dtype=np.float64)
    return canvas


def _needle(
    pen: ImageDraw.ImageDraw,
    rng: np.random.Generator,
    start: tuple[float, float],
    angle: float,
    length: float,
    width: float,
    branching: int,
    fine: int,
) -> None:
    """Draw one tapering, slightly bent needle and its branches."""
    pieces = max(2, int(length / 9))
    bend = rng.normal(0, 0.25) / pieces
    place = start
    for i in range(pieces):
        left = 1 - i / pieces
        angle += bend
        step = length / pieces
        end = (place[0] + step * math.cos(angle), place[1] + step * math.sin(angle))
        shade = int(90 + 165 * left)
        pen.line([(c * fine) for c in (*place, *end)], fill=shade, width=max(1, round(width * left * fine)))
        shorter = length * left * (0.3 + 0.2 * rng.random())
        if branching and i and shorter > 4:  # branches of a few pixels are invisible
            for side in (-math.pi / 3, math.pi / 3):
                _needle(pen, rng, end, angle + side, shorter, width * left * 0.7, branching - 1, fine)
        place = end


def _bent(field: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Displace the field smoothly by up to 6 pixels, so that needles are not straight lines."""
    height, width = field.shape
    shifts = []
    for _ in range(2):
        smooth = torch.from_numpy(rng.random((1, 1, 6, 8)) * 2 - 1)
        shifts.append(F.interpolate(smooth, (height, width), mode="bicubic", align_corners=True)[0, 0].numpy() * 4)
    rows = np.clip(np.rint(np.arange(height)[:, None] + shifts[0]), 0, height - 1).astype(np.intp)
    columns = np.clip(np.rint(np.arange(width) + shifts[1]), 0, width - 1).astype(np.intp)
    bent: NDArray[np.float64] = field[rows, columns]
    return bent
