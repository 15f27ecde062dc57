"""The commit: a write-set is validated and applied in one short critical section, alone or in a group."""
