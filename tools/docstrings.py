"""Our docstrings as Markdown: a griffe extension for the API pages, named in mkdocs.yml.

The docstrings are written for ``help()``, doctest and editors. On a page a doctest becomes a code block, an equation
MathML, and a role such as ``:class:`ttc.Adapter` `` a link.
"""

import re
from typing import Any

import griffe
from latex2mathml.converter import convert

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`([^`]+)`")
EQUATION = re.compile(r"^\.\. math:: (.+)$", re.MULTILINE)
DOCTEST = re.compile(r"^>>> .+(?:\n(?!\s*$).+)*", re.MULTILINE)


def as_markdown(text: str) -> str:
    """A docstring as Markdown."""
    text = text.replace("\\\\", "\\")  # griffe reads the source, where a backslash is doubled
    text = EQUATION.sub(lambda found: f'<p class="equation">{convert(found[1])}</p>', text)
    text = DOCTEST.sub(lambda found: f"\n```pycon\n{found[0]}\n```\n", text)
    return ROLE.sub(lambda found: _link(found[1]), text)


def _link(name: str) -> str:
    """A link to the name's own entry; plain where it has none."""
    return f'<autoref optional identifier="{name}"><code>{name}</code></autoref>'


class Docstrings(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
