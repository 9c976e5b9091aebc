"""Convert docstrings to Markdown for the API pages: a griffe extension, named in mkdocs.yml.

Docstrings are written for ``help()``, doctest and editors. On a page a doctest becomes a code block, an equation
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
    """Convert a docstring to Markdown."""
    text = text.replace("\\\\", "\\")  # griffe reads the source, where a backslash is doubled
    text = EQUATION.sub(lambda found: f'<p class="equation">{convert(found[1])}</p>', text)
    text = DOCTEST.sub(lambda found: f"\n```pycon\n{found[0]}\n```\n", text)
    return ROLE.sub(lambda found: _link(found[1]), text)


def _link(name: str) -> str:
    """Return a link to the entry of a name; plain text where it has none."""
    return f'<autoref optional identifier="{name}"><code>{name}</code></autoref>'


class Docstrings(griffe.Extension):
    """Rewrites every docstring as it is read, and hides how constants are computed."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Hide the value of an annotated module constant: the page shows its type, not the source that makes it."""
        if attr.annotation is not None and attr.parent is not None and attr.parent.is_module:
            attr.value = None
