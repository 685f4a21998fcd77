"""What can be said of a policy without a simulator: its value, its gain over the log, how sure that is, which to take."""
