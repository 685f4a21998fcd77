"""One file for each format that a log comes in."""
