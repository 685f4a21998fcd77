"""A name, an id or a factory becomes an environment."""
