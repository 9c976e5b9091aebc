"""The main table on CIFAR-10-C."""

from ttc.studies.main_tables import main_table

STUDY = main_table(
    "cifar10c",
    "Seven methods and two controls on CIFAR-10-C",
    "Each method meets fifteen corruptions at severity 5, one at a time, starting anew for each: images come once, in "
    "batches of 100, and are predicted before anything is learned from them.",
    "cifar10c-wrn28-10",
    "cifar10c",
)
