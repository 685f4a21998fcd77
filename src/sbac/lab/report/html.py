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
        f'<div class="scroll"><table class="sortable stacked"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def labelled_cell(head: str, text: str, value: str | None = None) -> str:
    """A cell that bears its column's name on a phone, where the columns of its table stand below each other.

    `text` is HTML; `value` is what the column is sorted by.
    """
    order = "" if value is None else f' data-value="{escape(value)}"'
    return f'<td data-label="{escape(head)}"{order}>{text}</td>'
