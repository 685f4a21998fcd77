"""Pieces of the page that its sections share. All text is escaped here."""

from collections.abc import Iterable
from html import escape


def head_cell(name: str, *below: str) -> str:
    small = "".join(f"<small>{escape(line)}</small>" for line in below if line)
    return f'<th scope="col"><button type="button">{escape(name)}</button>{small}</th>'


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def plain_table(heads: Iterable[str], rows: Iterable[str]) -> str:
    """A table that sorts by its columns; the rows are HTML already."""
    head = "".join(map(head_cell, heads))
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
