"""Made data: stand-ins for D4RL's files, played by shipped ladders of policies."""
