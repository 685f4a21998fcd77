"""Types that JAX's annotations name and jaxlib, a compiled module without stubs, leaves unknown."""

from typing import Any

class Device: ...

def __getattr__(name: str) -> Any: ...
