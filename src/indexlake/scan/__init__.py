"""Reading: one plan per read, made in one read transaction, run by threads or by any other executor."""
