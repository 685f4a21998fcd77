"""The laboratory: benches of many methods on many tasks, the paper's tables and figures. Only `cli` imports it."""
