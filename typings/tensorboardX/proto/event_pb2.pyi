"""What a test reads back."""

class Value:
    tag: str
    simple_value: float

class Summary:
    value: list[Value]

class Event:
    step: int
    summary: Summary

    @staticmethod
    def FromString(data: bytes, /) -> Event: ...
