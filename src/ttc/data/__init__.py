"""Datasets: CIFAR, CIFAR-C, ImageNet-C, image folders, on-the-fly corruption; where they are stored and downloaded."""

from ttc.data.cifar import cifar, cifar_c
from ttc.data.corrupted_images import corrupt_images
from ttc.data.decoding import Fitting
from ttc.data.embedded_images import embedded
from ttc.data.folders import image_folder, imagenet, imagenet_c
from ttc.data.frost import PROCEDURAL, choose_frost, frost_folder
from ttc.data.images import ArrayImages, Images, as_tensor, subset
from ttc.data.location import data_root
from ttc.data.named import open_dataset

__all__ = [
    "PROCEDURAL",
    "ArrayImages",
    "Fitting",
    "Images",
    "as_tensor",
    "choose_frost",
    "cifar",
    "cifar_c",
    "corrupt_images",
    "data_root",
    "embedded",
    "frost_folder",
    "image_folder",
    "imagenet",
    "imagenet_c",
    "open_dataset",
    "subset",
]
