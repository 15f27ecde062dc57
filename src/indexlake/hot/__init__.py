"""The hot store: where commits land, before jobs move rows to blocks.

Stores are implementations of one protocol (`store`).  The lake's persisted property ``hot`` names the one it uses.
"""
