"""Trained policies as files that other software runs: ONNX and StableHLO."""

from sbac.exporting.export_policy import FORMATS, export

__all__ = ["FORMATS", "export"]
