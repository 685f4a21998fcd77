"""Training in an environment."""
