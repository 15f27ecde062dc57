"""Trials that try to break the engine at random: each has a short version in the suite and a long one by command."""
