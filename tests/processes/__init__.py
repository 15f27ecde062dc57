"""A lake among processes and threads: fork, pickling, exit, close, and what the system refuses."""
