"""The datasets and checkpoints that ``ttc data fetch`` can download, and the files each one consists of."""

from dataclasses import dataclass

MB = 1_000_000
ZENODO = "https://zenodo.org/records"
TORONTO = ("https://www.cs.toronto.edu/~kriz", "https://cave.cs.toronto.edu/kriz")


@dataclass(frozen=True)
class DataFile:
    """A file in the data directory; without a published checksum, that of the first download is recorded beside it."""

    path: str
    size: int  # the minimum size in bytes
    checksum: str | None = None  # "md5:…" or "sha256:…"
    record: int | None = None  # bytes per image: a file of whole records with another checksum is a user's own copy
    training: bool = False  # needed for training only: a copy without any such file is complete for tests


@dataclass(frozen=True)
class Source:
    """A download: a single file, or an archive that is unpacked into the folder ``into`` of the data directory."""

    title: str
    file: str = ""  # path of the download in the data directory; empty: not redistributable, provided by the user
    urls: tuple[str, ...] = ()
    size: int | None = None  # exact size of the download in bytes
    checksum: str | None = None  # of the download
    into: str | None = None  # the folder to unpack into; None: not an archive
    parts: tuple[DataFile, ...] = ()
    folders: tuple[str, ...] = ()  # ImageNet: each must contain 50,000 images
    note: str = ""
    package: str = ""  # "name==version" on PyPI: the download is its wheel, whose folder ``inside`` has the files
    inside: str = ""


def _cifar_c(folder: str, dataset: str, record: int, size: int, md5: str, sums: dict[str, str]) -> Source:
    parts = (
        DataFile(f"{folder}/{name}.npy", 50_000 if name == "labels" else 153_600_000, f"md5:{digest}")
        for name, digest in sums.items()
    )
    url = f"{ZENODO}/{record}/files/{folder}.tar?download=1"
    note = f"the corrupted {dataset} test images of Hendrycks & Dietterich (2019)"
    return Source(folder, f"{folder}.tar", (url,), size, f"md5:{md5}", ".", tuple(parts), note=note)


def _imagenet_c(group: str, size: int, md5: str, corruptions: str) -> Source:
    folders = tuple(f"ImageNet-C/{name}/{severity}" for name in corruptions.split() for severity in range(1, 6))
    url = f"{ZENODO}/2235448/files/{group}.tar?download=1"
    title, file = f"ImageNet-C, {group}", f"ImageNet-C-{group}.tar"
    return Source(title, file, (url,), size, f"md5:{md5}", "ImageNet-C", (), folders, corruptions.replace(" ", ", "))


def _torchvision(name: str, size: int, sha256: str) -> Source:
    file = f"{name}-{sha256[:8]}.pth"
    path, digest = f"checkpoints/{file}", f"sha256:{sha256}"
    url = f"https://download.pytorch.org/models/{file}"
    note = f"for --model imagenet-{name}; ImageNet weights, version 1"
    return Source(f"torchvision's {name}", path, (url,), size, digest, parts=(DataFile(path, size, digest),), note=note)


_STANDARD = "1t98aEuzeTL8P7Kpd5DIrCoCL21BNZUhC"  # a Google Drive id
CIFAR10_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
CIFAR100_MD5 = {"train.bin": "6172c7755cfe09b2fe270c85cebc1b15", "test.bin": "4499cfba6c016c1be1438163640a0898"}
CIFAR_PYTHON_MD5 = (  # CIFAR-10: five training batches and the test batch; CIFAR-100: train and test
    "c99cafc152244af753f735de768cd75f",
    "d4bba439e000b95fd0a9bffe97cbabec",
    "54ebc095f3ab1f0389bbae665268c751",
    "634d18415352ddfa80567beed471001a",
    "482c414d41f54cd18b22e5b47cb7c3cb",
    "40351d587109b95175f43aff81a1287e",
    "16019d7e3df5f24257cddd939b257f8d",
    "f0ef6b0ae62326f3e7ffdfab6717acfc",
)
CIFAR10C_MD5 = {
    "brightness": "0a81ef75e0b523c3383219c330a85d48",
    "contrast": "3c8262171c51307f916c30a3308235a8",
    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
    "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
    "fog": "7b397314b5670f825465fbcd1f6e9ccd",
    "frost": "31f6ab3bce1d9934abfb0cc13656f141",
    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
    "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
    "glass_blur": "7361fb4019269e02dbf6925f083e8629",
    "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
    "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
    "labels": "c439b113295ed5254878798ffe28fd54",
    "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
    "pixelate": "0f14f7e2db14288304e1de10df16832f",
    "saturate": "1cfae0964219c5102abbb883e538cc56",
    "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
    "snow": "bb238de8555123da9c282dea23bd6e55",
    "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
    "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
    "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
}
CIFAR100C_MD5 = {
    "brightness": "f22d7195aecd6abb541e27fca230c171",
    "contrast": "322bb385f1d05154ee197ca16535f71e",
    "defocus_blur": "d923e3d9c585a27f0956e2f2ad832564",
    "elastic_transform": "a0792bd6581f6810878be71acedfc65a",
    "fog": "4efc7ebd5e82b028bdbe13048e3ea564",
    "frost": "3a39c6823bdfaa0bf8b12fe7004b8117",
    "gaussian_blur": "5204ba0d557839772ef5a4196a052c3e",
    "gaussian_noise": "ecc4d366eac432bdf25c024086f5e97d",
    "glass_blur": "0bf384f38e5ccbf8dd479d9059b913e1",
    "impulse_noise": "3b3c210ddfa0b5cb918ff4537a429fef",
    "jpeg_compression": "c851b7f1324e1d2ffddeb76920576d11",
    "labels": "bb4026e9ce52996b95f439544568cdb2",
    "motion_blur": "732a7e2e54152ff97c742d4c388c5516",
    "pixelate": "96c00c60f144539e14cffb02ddbd0640",
    "saturate": "c0697e9fdd646916a61e9c312c77bf6b",
    "shot_noise": "b0a1fa6e1e465a747c1b204b1914048a",
    "snow": "0237be164583af146b7b144e73b43465",
    "spatter": "12ccf41d62564d36e1f6a6ada5022728",
    "speckle_noise": "e3f215b1a0f9fd9fd6f0d1cf94a7ce99",
    "zoom_blur": "0204613400c034a81c4830d5df81cb82",
}
FROST_FILES = (
    DataFile("frost/frost1.png", 1_199_930, "sha256:ff9f907860bd7a835d459e32f9d588062b7f61ee267343cc7222b56753a14755"),
    DataFile("frost/frost2.png", 299_002, "sha256:fe211a89b336999c207a852ce05818d4545d0b57c5beadd824b4cc9d9a9b6137"),
    DataFile("frost/frost3.png", 299_002, "sha256:2d0d50b4a9bb213f38b024ef7768731bb83cc08d2f26b5766bbc167cdfa0e504"),
    DataFile("frost/frost4.jpg", 36_734, "sha256:3f8b91ca1a9fa7167b09e773da53f5ae60d0a1fd88f02a783f6e328a72887f6e"),
    DataFile("frost/frost5.jpg", 155_150, "sha256:5fc6a19df4a429ba68abdcc8f8a4278d4c9f81c9ccafd2c92ab0c8cf8992ebd2"),
)

SOURCES: dict[str, Source] = {
    "cifar10": Source(
        "CIFAR-10",
        "cifar-10-binary.tar.gz",
        tuple(f"{home}/cifar-10-binary.tar.gz" for home in TORONTO),
        170_052_171,
        "md5:c32a1d4ab5d03f1284b67883e8d87530",
        ".",
        tuple(
            DataFile(f"cifar-10-batches-bin/{name}", 30_730_000, f"md5:{md5}", 3073, name.startswith("data"))
            for name, md5 in CIFAR10_MD5.items()
        ),
        note="clean images, for training and on-the-fly corruption",
    ),
    "cifar100": Source(
        "CIFAR-100",
        "cifar-100-binary.tar.gz",
        tuple(f"{home}/cifar-100-binary.tar.gz" for home in TORONTO),
        168_513_733,
        "md5:03b5dce01913d631647c71ecec9e9cb8",
        ".",
        (
            DataFile("cifar-100-binary/train.bin", 153_700_000, f"md5:{CIFAR100_MD5['train.bin']}", 3074, True),
            DataFile("cifar-100-binary/test.bin", 30_740_000, f"md5:{CIFAR100_MD5['test.bin']}", 3074),
        ),
        note="clean images, for training and on-the-fly corruption",
    ),
    "cifar10-c": _cifar_c(
        "CIFAR-10-C", "CIFAR-10", 2535967, 2_918_471_680, "56bf5dcef84df0e2308c6dcbcbbd8499", CIFAR10C_MD5
    ),
    "cifar100-c": _cifar_c(
        "CIFAR-100-C", "CIFAR-100", 3555552, 2_918_473_216, "11f0ed0f1191edbf9fa23466ae6021d3", CIFAR100C_MD5
    ),
    "imagenet-c-noise": _imagenet_c(
        "noise", 22_565_673_785, "e80562d7f6c3f8834afb1ecf27252745", "gaussian_noise shot_noise impulse_noise"
    ),
    "imagenet-c-blur": _imagenet_c(
        "blur", 7_112_704_951, "2d8e81fdd8e07fef67b9334fa635e45c", "defocus_blur glass_blur motion_blur zoom_blur"
    ),
    "imagenet-c-weather": _imagenet_c(
        "weather", 12_797_438_995, "33ffea4db4d93fe4a428c40a6ce0c25d", "snow frost fog brightness"
    ),
    "imagenet-c-digital": _imagenet_c(
        "digital",
        7_757_510_705,
        "89157860d7b10d5797849337ca2e5c03",
        "contrast elastic_transform pixelate jpeg_compression",
    ),
    "imagenet-c-extra": _imagenet_c(
        "extra", 15_789_490_144, "d492dfba5fc162d8ec2c3cd8ee672984", "speckle_noise gaussian_blur spatter saturate"
    ),
    "imagenet": Source(
        "ImageNet validation set",
        folders=("imagenet/val",),
        note="requires an account at image-net.org; sort the images into imagenet/val/<wnid>/*.JPEG",
    ),
    "frost": Source(
        "original frost textures",
        "imagecorruptions-1.1.2-py3-none-any.whl",
        size=2_094_054,
        checksum="sha256:d0e4bf529ba6fbb27d8aba1bde7c5db43bf2b969b2c767c11419e939e3e365b8",
        into="frost",
        parts=FROST_FILES,
        note="used for frost instead of procedural textures once they are fetched; from PyPI through pip",
        package="imagecorruptions==1.1.2",
        inside="imagecorruptions/frost",
    ),
    "robustbench-standard": Source(
        "RobustBench's Standard WRN-28-10",
        "checkpoints/robustbench-standard.pt",
        (
            f"https://drive.usercontent.google.com/download?id={_STANDARD}&export=download&confirm=t",
            f"https://drive.google.com/uc?export=download&confirm=t&id={_STANDARD}",
        ),
        parts=(DataFile("checkpoints/robustbench-standard.pt", 140 * MB),),
        note="for --model wrn-28-10; no published checksum, so that of the first download is recorded",
    ),
    "torchvision-resnet50": _torchvision(
        "resnet50", 102_530_333, "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a"
    ),
    "torchvision-resnet18": _torchvision(
        "resnet18", 46_830_571, "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec"
    ),
}
GROUPS = {"imagenet-c": ("imagenet-c-noise", "imagenet-c-blur", "imagenet-c-weather", "imagenet-c-digital")}
