"""Trained policies in numpy: they act without JAX."""

from sbac.policy.formulas import FORMULAS, Floats
from sbac.policy.policy import Policy

__all__ = ["FORMULAS", "Floats", "Policy"]
