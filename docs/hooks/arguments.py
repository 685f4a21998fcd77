"""For the API reference: the lines `name: text` of a docstring become its table of parameters."""

import re
from typing import Any

import griffe

ENTRY = re.compile(r"^(\w+): ")


class Arguments(griffe.Extension):
    """Puts `Args:` before the paragraph in which the parameters are described."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.docstring is None:
            return
        names = {parameter.name for parameter in func.parameters} | {"overrides"}
        paragraphs = func.docstring.value.split("\n\n")
        for i, paragraph in enumerate(paragraphs):
            found = ENTRY.match(paragraph)
            if found and found[1] in names:
                paragraphs[i] = "Args:\n" + "\n".join(f"    {line}" for line in paragraph.splitlines())
        func.docstring.value = "\n\n".join(paragraphs)
