"""Trained policies: the formulas by which they act, and the policy in numpy, which acts without JAX."""

from sbac.policy.formulas import FORMULAS, Floats
from sbac.policy.policy import Policy

__all__ = ["FORMULAS", "Floats", "Policy"]
