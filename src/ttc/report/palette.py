"""A colour and a mark for each method, the same in every picture: Okabe and Ito's colours, told apart by all eyes."""

from typing import NamedTuple

# what the page's theme decides; the second value is for a dark page
ROLES = {
    "ink": ("#1b1f24", "#e8eaed"),
    "muted": ("#5f6873", "#a3abb5"),
    "grid": ("#e3e6ea", "#353b43"),
    "surface": ("#ffffff", "#15181c"),
}


class Style(NamedTuple):
    """How a series looks: a hex colour or a role, the shape of its marks, and whether it is the one to see first."""

    colour: str
    marker: str = "circle"
    strong: bool = False


STYLES = {
    "ttc": Style("#d55e00", "circle", strong=True),
    "tent": Style("#0072b2", "square"),
    "source": Style("#8a8f98", "cross"),
    "norm": Style("#009e73", "diamond"),
    "t3a": Style("#cc79a7", "triangle"),
    "eta": Style("#56b4e9", "wedge"),
    "tipi": Style("#e69f00", "plus"),
    "supervised": Style("#e69f00", "circle"),
}
_OTHERS = ("#7b61c4", "#a6761d", "#4d9221", "#b2182b", "#01a0b5", "#c994c7")
MARKERS = ("circle", "square", "diamond", "triangle", "wedge", "plus", "cross")


def style(name: str, place: int = 0) -> Style:
    """The style of a method by its name, or for another series the one at ``place``.

    A method's variants keep its colour: what follows ``-``, ``(``, ``,`` or a blank is left aside.

    >>> style("TTC") == style("ttc(bandwidth=2)")
    True
    >>> style("eta-paper").colour
    '#56b4e9'
    """
    word = name.lower()
    for end in "-(, ":
        word = word.partition(end)[0]
    if word in STYLES:
        return STYLES[word]
    return Style(_OTHERS[place % len(_OTHERS)], MARKERS[place % len(MARKERS)])
