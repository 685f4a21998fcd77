"""Methods on tasks: what is measured, by which code, on which data, kept so that it can be continued and merged."""
