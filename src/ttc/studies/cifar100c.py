"""The main table on CIFAR-100-C."""

from ttc.studies.main_tables import main_table

STUDY = main_table(
    "cifar100c",
    "Seven methods and two controls on CIFAR-100-C",
    "The same protocol with a hundred classes. The shipped model knows ten: on the embedded and cpu profiles this "
    "study runs the same cells as cifar10c and compares them with the paper's hundred-class table.",
    "cifar100c-wrn28-10",
    "cifar100c",
    "In the paper NORM (51.0) is ahead of TTC (50.6) in this table.",
)
