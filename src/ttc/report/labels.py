"""How numbers are written, and where names go: wrapped, flowed into a legend, moved apart, put beside points."""

from collections.abc import Sequence

from ttc.report.drawing import Point, text_width

Box = tuple[float, float, float, float]  # left, top, right, bottom


def number(value: float | None, digits: int = 1, *, sign: bool = False) -> str:
    """A number as tables and charts print it, without a sign where it rounds to zero; nothing where there is none.

    >>> number(-1.25), number(3.14159, 2, sign=True), number(-0.01), number(None)
    ('−1.2', '+3.14', '0.0', '')
    """
    if value is None:
        return ""
    rounded = round(value, digits)
    return f"{rounded or 0.0:{'+' if sign and rounded else ''}.{digits}f}".replace("-", "−")


def points(estimate: float, low: float, high: float) -> str:
    """A gain in points, and its interval.

    >>> points(1.84, 1.68, 2.01)
    '+1.84 points (+1.68 to +2.01)'
    """
    gain, low_end, high_end = (number(value, 2, sign=True) for value in (estimate, low, high))
    return f"{gain} points ({low_end} to {high_end})"


def wrapped(text: str, size: float, width: float) -> list[str]:
    """The bold text as lines no wider than ``width``, broken at blanks.

    >>> wrapped("one two three", 10, 30)
    ['one', 'two', 'three']
    """
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size, bold=True) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def flowed(
    names: Sequence[str], size: float, width: float, key: float = 22, gap: float = 14
) -> tuple[list[Point], float]:
    """The places of a legend's entries, in as many rows as they need, and the height of them all.

    >>> flowed(["a", "b"], 12, 40)
    ([(0.0, 0.0), (0.0, 20.0)], 40.0)
    """
    places: list[Point] = []
    x = y = 0.0
    for name in names:
        needed = key + text_width(name, size)
        if places and x + needed > width:
            x, y = 0.0, y + 20
        places.append((x, y))
        x += needed + gap
    return places, y + 20


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the ``wanted`` ones, in the same order, at least ``gap`` apart, within the ends while they fit.

    >>> spread([50, 52, 10], 14, 0, 100)
    [44.0, 58.0, 10.0]
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    groups: list[tuple[float, list[int]]] = []  # (middle, members), each group packed around its mean
    for index in order:
        groups.append((float(wanted[index]), [index]))
        while len(groups) > 1 and _bottom(groups[-2], gap) > _top(groups[-1], gap):
            below, above = groups.pop(), groups.pop()
            members = above[1] + below[1]
            groups.append((sum(wanted[member] for member in members) / len(members), members))
    places = [0.0] * len(wanted)
    for middle, members in groups:
        for rank, index in enumerate(members):
            places[index] = middle + (rank - (len(members) - 1) / 2) * gap
    if order:  # groups at the ends may stick out: push them in, from the end inwards
        limit = high
        for index in reversed(order):
            places[index] = limit = min(places[index], limit)
            limit -= gap
        limit = low
        for index in order:
            places[index] = limit = max(places[index], limit)
            limit += gap
    return places


def _top(group: tuple[float, list[int]], gap: float) -> float:
    return group[0] - len(group[1]) * gap / 2


def _bottom(group: tuple[float, list[int]], gap: float) -> float:
    return group[0] + len(group[1]) * gap / 2


def beside(points: Sequence[Point], widths: Sequence[float], size: float, within: Box) -> list[Point]:
    """The start and middle height of a text beside each point, on the first free side of it.

    >>> beside([(50, 50)], [20], 12, (0, 0, 100, 100))
    [(59.0, 50.0)]
    """
    taken: list[Box] = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    found: list[Point] = []
    for (x, y), width in zip(points, widths, strict=True):
        sides = [(x + 9, y), (x - 9 - width, y), (x - width / 2, y - 15), (x - width / 2, y + 15)]
        sides += [(x + 7, y - 13), (x + 7, y + 13), (x - 7 - width, y - 13), (x - 7 - width, y + 13)]
        boxes = [(left, along - size / 2, left + width, along + size / 2) for left, along in sides]
        free = [box for box in boxes if _inside(box, within) and not any(_touch(box, other) for other in taken)]
        box = (free or boxes)[0]
        taken.append(box)
        found.append((float(box[0]), float((box[1] + box[3]) / 2)))
    return found


def _inside(box: Box, within: Box) -> bool:
    return box[0] >= within[0] and box[1] >= within[1] and box[2] <= within[2] + 12 and box[3] <= within[3]


def _touch(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def lifted(places: Sequence[float], width: float, step: float) -> list[float]:
    """The vertical shifts that keep marks on one row apart; the first stays on the row, later ones make way.

    >>> lifted([50, 52, 90], 11, 7.0)
    [0.0, -7.0, 0.0]
    """
    shifts = (0.0, -step, step, -2 * step, 2 * step)
    found: list[float] = []
    for place in places:
        near = [other for other, there in zip(found, places, strict=False) if abs(there - place) < width]
        free = [shift for shift in shifts if all(abs(shift - other) >= step for other in near)]
        rooms = free or sorted(shifts, key=lambda shift: sum(abs(shift - other) < step for other in near))
        found.append(rooms[0])
    return found
