"""Profiles: a study on the shipped model and images, on all of CIFAR-10, on your data, or on the paper's."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import cast

from ttc.bench.workload import ResolvedWorkload, Workload
from ttc.data import catalogue, data_root, fetching, frost_folder
from ttc.data.cifar import LAYOUTS, Cifar, has_test_images
from ttc.errors import TTCError

PROFILES = ("embedded", "cpu", "real", "paper")
KINDS = {"cifar10c": "cifar10", "cifar100c": "cifar100", "imagenetc": "imagefolder", "resnet50": "cifar10"}
IMAGES = {"cifar10": "CIFAR-10's test images", "cifar100": "CIFAR-100's test images", "imagefolder": "class folders"}


@dataclass(frozen=True)
class Setting:
    """What the paper ran on: data, model, checkpoint, their names in the catalogue, and the paper's column."""

    dataset: str
    model: str
    checkpoint: str
    sources: tuple[str, ...]
    column: str
    title: str
    bring: str = ""  # how to come by a checkpoint that nobody publishes


SETTINGS = {
    "cifar10c": Setting(
        "cifar10-c",
        "wrn-28-10",
        "checkpoints/robustbench-standard.pt",
        ("cifar10-c", "robustbench-standard"),
        "CIFAR-10-C",
        "CIFAR-10-C, WideResNet-28-10",
    ),
    "cifar100c": Setting(
        "cifar100-c",
        "wrn-28-10",
        "checkpoints/cifar100-wrn-28-10.pt",
        ("cifar100-c",),
        "CIFAR-100-C",
        "CIFAR-100-C, WideResNet-28-10",
        "the paper's is not public; train one on a GPU (ttc train --model wrn-28-10 --dataset cifar100 --device cuda) "
        "and put its weights there, or bring your own",
    ),
    "imagenetc": Setting(
        "imagenet-c",
        "imagenet-resnet50",
        "checkpoints/resnet50-0676ba61.pth",
        (*catalogue.GROUPS["imagenet-c"], "torchvision-resnet50"),
        "ImageNet-C",
        "ImageNet-C, ResNet-50",
    ),
    "resnet50": Setting(
        "cifar10-c",
        "cifar-resnet50",
        "checkpoints/cifar10-resnet50.pt",
        ("cifar10-c",),
        "CIFAR-10-C",
        "CIFAR-10-C, ResNet-50",
        "the paper's is not public; train one on a GPU (ttc train --model cifar-resnet50 --device cuda) and put its "
        "weights there, or bring your own",
    ),
}


@dataclass(frozen=True)
class Need:
    """Something a profile needs: whether it is here, where, and how to get it."""

    what: str
    present: bool
    detail: str
    get: str = ""
    required: bool = True


@dataclass(frozen=True)
class Setup:
    """A profile made concrete: the data and model, whether the paper's own, and what must be there."""

    profile: str
    workload: Workload
    device: str
    comparable: bool  # the paper's data and architecture: its numbers may be met, not only its order of methods
    title: str
    column: str
    needs: tuple[Need, ...]
    note: str = ""

    @cached_property
    def resolved(self) -> ResolvedWorkload:
        """The data and the model, found once for planning and running."""
        return self.workload.resolve()


def setup(
    profile: str,
    setting: str,
    *,
    root: Path | None = None,
    dataset: str | None = None,
    model: str | None = None,
    checkpoint: Path | None = None,
    device: str | None = None,
    frost_dir: Path | None = None,
    statistics: str | None = None,
) -> Setup:
    """The set-up of a profile for one of the paper's settings; data, model and checkpoint may be one's own.

    The real profile has nothing of its own but the model for CIFAR-10: the dataset, from :func:`real_data`, and the
    model are given.
    """
    if profile not in PROFILES:
        raise TTCError(f"there is no profile '{profile}'; choose {', '.join(PROFILES)}")
    wanted = SETTINGS[setting]
    own = any(value is not None for value in (dataset, model, checkpoint))
    if profile == "paper":
        workload = Workload(dataset or wanted.dataset, model or wanted.model, checkpoint, root)
        if model is None and checkpoint is None:
            workload = Workload(workload.dataset, workload.model, Path(wanted.checkpoint), root)
    else:
        usual = "cifar10" if profile == "cpu" else "embedded"
        workload = Workload(dataset or usual, model or "embedded", checkpoint, root)
    workload = replace(workload, frost_dir=frost_dir, statistics=statistics)
    title = wanted.title if profile == "paper" and not own else _title(workload)
    return Setup(
        profile,
        workload,
        device or ("cpu" if profile != "paper" else _accelerator()),
        profile == "paper" and not own,
        title,
        wanted.column,
        _real_needs(setting, workload, dataset, model)
        if profile == "real"
        else ()
        if own
        else _needs(profile, wanted, data_root(root)),
        "" if profile == "paper" and not own else _note(wanted, title),
    )


def real_data(folder: Path, setting: str = "") -> tuple[str, str]:
    """Find out what a folder of real data is.

    Args:
        folder: The folder of CIFAR-10 or CIFAR-100, in binary or Python format, or one with a folder per class.
        setting: The setting that a study is bound to, empty if it runs on any.

    Returns:
        The setting, and the dataset as ``ttc run`` takes it.

    Raises:
        TTCError: If the folder does not exist, or has other data than the setting.
    """
    if not folder.is_dir():
        raise TTCError(f"there is no folder {folder}: with --profile real, --data is the folder of your images")
    found = [kind for kind in LAYOUTS if has_test_images(folder, cast(Cifar, kind))] or ["imagefolder"]
    kind = KINDS[setting] if setting else found[0]
    if kind not in found:
        raise TTCError(
            f"{folder} has {IMAGES[found[0]]} and {setting} runs on {IMAGES[kind]}: choose another study or --data"
        )
    return setting or next(name for name, other in KINDS.items() if other == kind), f"{kind}:{folder.absolute()}"


def _real_needs(setting: str, workload: Workload, dataset: str | None, model: str | None) -> tuple[Need, ...]:
    kind, textures = KINDS[setting], frost_folder(data_root(workload.root)) or workload.frost_dir
    has_model = model is not None or kind == "cifar10"
    weights = "--model NAME --checkpoint FILE, or --model my_module:my_function"
    return (
        Need(IMAGES[kind], dataset is not None, dataset or "not given", "--data FOLDER"),
        Need("a model for them", has_model, workload.model if has_model else "not given", weights),
        Need(
            "original frost textures",
            textures is not None,
            str(textures or "procedural ones are used"),
            "ttc data fetch frost",
            required=False,
        ),
    )


def _title(workload: Workload) -> str:
    kind = workload.dataset.partition(":")[0]
    data = "the shipped 2,000 CIFAR-10 test images, corrupted" if kind == "embedded" else workload.dataset_name
    if kind in ("cifar10", "cifar100"):
        data = f"{IMAGES[kind]}, corrupted"
    model = "the shipped ResNet-20" if workload.model == "embedded" else workload.model
    statistics = f", input statistics {workload.statistics}" if workload.statistics else ""
    return f"{data}; {model}{statistics}"


def _note(wanted: Setting, title: str) -> str:
    return (
        f"The paper's numbers are for {wanted.title}; ours are for {title}. The levels differ for that reason alone: "
        "what should carry over is the order of the methods and the direction of each gain, and only these are checked."
    )


def _needs(profile: str, wanted: Setting, root: Path) -> tuple[Need, ...]:
    if profile == "embedded":
        return (Need("the shipped images and model", True, "part of the installation"),)
    names = ("cifar10",) if profile == "cpu" else wanted.sources
    found = []
    for name in names:
        state = fetching.source_status(name, root)
        title = catalogue.SOURCES[name].title
        found.append(Need(title, state.status == "present", f"{state.status} in {root}", f"ttc data fetch {name}"))
    if profile == "paper" and wanted.bring:
        path = root / wanted.checkpoint
        there = path.is_file()
        found.append(
            Need(f"a checkpoint for {wanted.model}", there, f"{'is' if there else 'expected'} at {path}", wanted.bring)
        )
    if profile == "paper":
        gpu = _accelerator() != "cpu"
        speed = "a GPU" if gpu else "none here: the CPU works too, and takes days"
        found.append(Need("a GPU", gpu, speed, "a machine with CUDA, or patience", required=False))
    return tuple(found)


def _accelerator() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
