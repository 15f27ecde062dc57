"""The ``memory`` hot store: row pages and trees in the memory of the one process that owns the lake, and a redo log."""
