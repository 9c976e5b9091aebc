"""Profiles: the same study on the shipped model and images, on all of CIFAR-10, or on the paper's models and data."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ttc.bench.workload import ResolvedWorkload, Workload
from ttc.data import catalogue, data_root, fetching
from ttc.errors import TTCError

PROFILES = ("embedded", "cpu", "paper")


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
) -> Setup:
    """The set-up of a profile for one of the paper's settings; data, model and checkpoint may be one's own."""
    if profile not in PROFILES:
        raise TTCError(f"there is no profile '{profile}'; choose {', '.join(PROFILES)}")
    wanted = SETTINGS[setting]
    own = any(value is not None for value in (dataset, model, checkpoint))
    if profile == "paper":
        workload = Workload(dataset or wanted.dataset, model or wanted.model, checkpoint, root)
        if model is None and checkpoint is None:
            workload = Workload(workload.dataset, workload.model, Path(wanted.checkpoint), root)
    else:
        usual = "embedded" if profile == "embedded" else "cifar10"
        workload = Workload(dataset or usual, model or "embedded", checkpoint, root)
    workload = replace(workload, frost_dir=frost_dir)
    title = wanted.title if profile == "paper" and not own else _title(workload)
    return Setup(
        profile,
        workload,
        device or ("cpu" if profile != "paper" else _accelerator()),
        profile == "paper" and not own,
        title,
        wanted.column,
        () if own else _needs(profile, wanted, data_root(root)),
        "" if profile == "paper" and not own else _note(wanted, title),
    )


def _title(workload: Workload) -> str:
    data = {
        "embedded": "the shipped 2,000 CIFAR-10 test images, corrupted",
        "cifar10": "CIFAR-10's test images, corrupted",
    }
    model = "the shipped ResNet-20" if workload.model == "embedded" else workload.model
    return f"{data.get(workload.dataset, workload.dataset_name)}; {model}"


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
