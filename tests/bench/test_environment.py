import numpy as np
import torch

import ttc
from ttc.bench.environment import cores, environment


def test_the_environment_names_versions_machine_and_commit() -> None:
    found = environment()
    assert (found["ttc"], found["torch"], found["numpy"]) == (ttc.__version__, torch.__version__, np.__version__)
    assert found["cores"] == cores() >= 1
    assert found["processor"]
    commit = found["commit"]
    assert commit is None or len(str(commit).removesuffix("-dirty")) == 40
