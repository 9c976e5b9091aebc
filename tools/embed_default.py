"""Put a trained model and the first 2,000 test images into the package as its embedded default.

ttc train --data DATA --out TRAINED
python tools/embed_default.py DATA TRAINED
"""

import shutil
import sys
from pathlib import Path

import numpy as np

from ttc.data import cifar
from ttc.data.embedded_images import NAME, mosaic

PACKAGE = Path(__file__).parents[1] / "src" / "ttc"


def main(data: Path, trained: Path) -> None:
    """Write the images from ``data`` and copy weights and card from ``trained``."""
    test = cifar(data, "cifar10")
    folder = PACKAGE / "data" / "default"
    (folder / f"{NAME}.png").write_bytes(mosaic(test.pixels(range(2000))))
    (folder / f"{NAME}.labels").write_bytes(test.labels[:2000].astype(np.uint8).tobytes())
    for name in ("resnet20.safetensors", "card.json", "card.md"):
        shutil.copyfile(trained / name, PACKAGE / "models" / "default" / name)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
