"""The main table on ImageNet-C."""

from ttc.studies.main_tables import main_table

STUDY = main_table(
    "imagenetc",
    "Seven methods and two controls on ImageNet-C",
    "The same protocol with a thousand classes, ResNet-50 and SGD. The shipped model knows ten classes: on the "
    "embedded and cpu profiles this study runs the same cells as cifar10c and compares them with the paper's "
    "ImageNet-C table.",
    "imagenetc-resnet50",
    "imagenetc",
)
