"""Commit a write-set: validate and apply it in one short critical section, alone or together with others."""
