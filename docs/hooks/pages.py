"""While the site is built: reference pages come from the code, and formulas become MathML, which needs no script."""

import html
import os
import re

import latex2mathml.converter

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fills the marks of the reference pages."""
    for mark, fill in (("<!-- commands -->", commands), ("<!-- options -->", options)):
        if mark in markdown:
            markdown = markdown.replace(mark, fill())
    return markdown


def on_page_content(content: str, **_: object) -> str:
    """Typesets what stands between dollars."""

    def typeset(found: re.Match[str]) -> str:
        display = "block" if found[1] == "div" else "inline"
        return latex2mathml.converter.convert(html.unescape(found[2]), display=display)

    return FORMULA.sub(typeset, content)


def commands() -> str:
    """The help of every command."""
    from sbac.cli import build_parser
    from sbac.cli.core import Parser

    os.environ["COLUMNS"] = "84"

    def described(parser: Parser, level: int) -> list[str]:
        own = [f"{'#' * level} `{parser.prog}`", f"```text\n{parser.format_help().rstrip()}\n```"]
        return own + [text for below in parser.below.values() for text in described(below, min(level + 1, 3))]

    return "\n\n".join(text for below in build_parser().below.values() for text in described(below, 2))


def options() -> str:
    """The options of every method, from the fields of its config."""
    from sbac.algorithms import REGISTRY, find
    from sbac.algorithms.listing import options_table

    parts: list[str] = []
    for name in REGISTRY:
        method = find(name)
        phases = ", ".join(phase.name for phase in method.phases)
        parts += [f"## `{name}`", f"{method.source} Phases: {phases}.", options_table(name)]
    return "\n\n".join(parts)
