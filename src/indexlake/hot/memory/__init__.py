"""The ``memory`` hot store: pages of rows and trees in the memory of the lake's one owner process, and a redo log."""
