"""Trained policies, acting in numpy."""

from sbac.policy.formulas import KINDS, Floats
from sbac.policy.policy import Policy

__all__ = ["KINDS", "Floats", "Policy"]
