"""For the API reference: the lines `name: text` of a docstring become a table of parameters, or a list in a class."""

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^(\w+(?:, \w+)*): ")


class Arguments(griffe.Extension):
    """Rewrites the paragraphs in which parameters and attributes are described, for the reader of Google's style."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.docstring is None:
            return
        names = {parameter.name for parameter in func.parameters}
        paragraphs = func.docstring.value.split("\n\n")
        for i, paragraph in enumerate(paragraphs):
            found = ENTRY.match(paragraph)
            if found and set(found[1].split(", ")) <= names:
                lines = [text for line in paragraph.splitlines() for text in apart(line)]
                paragraphs[i] = "Args:\n" + "\n".join(f"    {line}" for line in lines)
        func.docstring.value = "\n\n".join(paragraphs)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.docstring is None:
            return
        paragraphs = cls.docstring.value.split("\n\n")
        for i, paragraph in enumerate(paragraphs):
            lines = paragraph.splitlines()
            if len(lines) > 1 and all(map(ENTRY.match, lines)):
                paragraphs[i] = "\n".join(f"- {line}" for line in lines)
        cls.docstring.value = "\n\n".join(paragraphs)


def apart(line: str) -> list[str]:
    """`low, high: text` as a line for each."""
    found = ENTRY.match(line)
    if found is None:
        return [line]
    return [f"{name}: {line[found.end() :]}" for name in found[1].split(", ")]
