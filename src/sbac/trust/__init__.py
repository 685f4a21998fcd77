"""What can be said of policies without a simulator: their values, their gains over the log, and which one to take."""
