"""The readers, one module for each format of a log."""
