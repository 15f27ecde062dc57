"""The hot store: where commits go before jobs move rows to blocks.

Stores implement one protocol (`store`).  The lake's persisted property ``hot`` names the one that it uses.
"""
