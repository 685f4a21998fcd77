"""What was measured: cells, series of seeds, tables and statistics."""
