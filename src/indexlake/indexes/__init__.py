"""Indexes: the order-preserving encoding of keys, and for each kind the segments that find them in blocks.

A segment never misses a key that its blocks hold, and every slot that it returns holds exactly that key.  Segments do
not deal with visibility: whether the row in a slot is visible or deleted is for the caller to know.
"""
