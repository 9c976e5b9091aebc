"""The catalogue describes what its own readers expect."""

from ttc.corruptions import CORRUPTIONS, EXTRA_CORRUPTIONS
from ttc.data.catalogue import GROUPS, SOURCES
from ttc.data.cifar import LAYOUTS


def test_the_catalogue_is_consistent() -> None:
    for name, source in SOURCES.items():
        assert source.parts or source.folders, name
        assert all(url.startswith("https://") for url in source.urls), name
        for checksum in (source.checksum, *(part.checksum for part in source.parts)):
            if checksum is not None:
                algorithm, digest = checksum.split(":")
                assert len(digest) == {"md5": 32, "sha256": 64}[algorithm], name
    assert len(SOURCES["cifar10-c"].parts) == len(SOURCES["cifar100-c"].parts) == 20
    assert sum(len(SOURCES[name].folders) for name in GROUPS["imagenet-c"]) == 15 * 5


def test_paths_are_those_the_readers_open() -> None:
    for dataset, layout in LAYOUTS.items():
        paths = {part.path for part in SOURCES[dataset].parts}
        assert paths == {f"{layout.folder}/{file}" for file in (*layout.train, *layout.test)}
        corrupted = {part.path for part in SOURCES[f"{dataset}-c"].parts}
        names = ("labels", *CORRUPTIONS, *EXTRA_CORRUPTIONS)
        assert corrupted == {f"{layout.corrupted}/{name}.npy" for name in names}


def test_imagenet_c_groups_cover_the_fifteen_corruptions() -> None:
    folders = {folder for name in GROUPS["imagenet-c"] for folder in SOURCES[name].folders}
    assert folders == {f"ImageNet-C/{name}/{severity}" for name in CORRUPTIONS for severity in range(1, 6)}
