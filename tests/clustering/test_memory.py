"""The balanced memory against its rules, written out with one list of items per class."""

import math
import random

import pytest
import torch

import ttc
from ttc.clustering import BalancedMemory


class PerClass:
    """The rules item by item: [image, uncertainty, age] in a list per class."""

    def __init__(self, capacity: int, classes: int) -> None:
        self.capacity, self.classes = capacity, classes
        self.lists: list[list[list[float]]] = [[] for _ in range(classes)]

    def score(self, age: float, uncertainty: float) -> float:
        return 1 / (1 + math.exp(-age / self.capacity)) + uncertainty / math.log(self.classes)

    def insert(self, image: float, label: int, uncertainty: float) -> None:
        total = sum(map(len, self.lists))
        if len(self.lists[label]) < self.capacity / self.classes:
            if total < self.capacity:
                room = True
            else:
                longest = max(map(len, self.lists))
                room = self.evict([k for k in range(self.classes) if len(self.lists[k]) == longest], uncertainty)
        else:
            room = self.evict([label], uncertainty)
        if room:
            self.lists[label].append([image, uncertainty, 0])
        for items in self.lists:
            for item in items:
                item[2] += 1

    def evict(self, candidates: list[int], uncertainty: float) -> bool:
        found, worst = None, 0.0
        for k in candidates:
            for place, (_, old, age) in enumerate(self.lists[k]):
                if self.score(age, old) >= worst:
                    found, worst = (k, place), self.score(age, old)
        if found is None or worst <= self.score(0, uncertainty):
            return False
        self.lists[found[0]].pop(found[1])
        return True


@pytest.mark.parametrize(("capacity", "classes"), [(16, 4), (10, 4), (5, 12), (64, 10)])
def test_the_memory_by_its_rules(capacity: int, classes: int) -> None:
    draw = random.Random(0)
    literal, memory = PerClass(capacity, classes), BalancedMemory(capacity, classes)
    for step in range(300):
        label = min(int(draw.expovariate(1.0)), classes - 1)  # some classes are frequent
        uncertainty = draw.choice([0.1, 0.5, draw.uniform(0, math.log(classes))])  # ties too
        literal.insert(step, label, uncertainty)
        memory.add(torch.full((1, 1, 1), float(step)), label, uncertainty)
        images, ages = memory.stacked()
        items = [item for items in literal.lists for item in items]
        assert images.flatten().tolist() == [image for image, _, _ in items]
        torch.testing.assert_close(ages, torch.tensor([age / capacity for _, _, age in items]))
        assert len(memory) <= capacity
    assert len(memory) > 1


def test_it_stores_copies() -> None:
    memory, image = BalancedMemory(4, 2), torch.zeros(1, 2, 2)
    assert memory.add(image, 0, 0.1)
    image += 1
    assert not memory.images[0].any()


def test_another_shape_starts_a_new_memory() -> None:
    memory = BalancedMemory(8, 2)
    memory.add(torch.zeros(1, 2, 2), 0, 0.1)
    memory.add(torch.zeros(1, 3, 3), 1, 0.1)
    assert [image.shape for image in memory.images] == [(1, 3, 3)]
    assert memory.labels == [1]


def test_a_memory_without_places_is_rejected() -> None:
    with pytest.raises(ttc.TTCError, match="positive number of images, got 0"):
        BalancedMemory(0, 2)
