"""Indexes: the order-preserving encoding of keys, and the segments that find them in blocks, by kind.

A segment never misses a key that its blocks hold, and every slot that it names holds exactly that key.  Whether the
row there is visible or deleted is not its business.
"""
