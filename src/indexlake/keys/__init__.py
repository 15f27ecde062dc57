"""Primary keys: their order-preserving encoding, and the segments that find them in blocks.

A segment never misses a key that its block holds, and every position that it names holds exactly that key.
Whether the row at the position is visible or deleted is not its business.
"""

from indexlake.keys.bloom import hash_key, hash_keys
from indexlake.keys.encoding import Key, KeyColumn, encode_key, key_from_bytes, key_to_bytes
from indexlake.keys.segment import Segment, open_segment
from indexlake.keys.writer import WrittenSegment, write_segment

__all__ = [
    "Key",
    "KeyColumn",
    "Segment",
    "WrittenSegment",
    "encode_key",
    "hash_key",
    "hash_keys",
    "key_from_bytes",
    "key_to_bytes",
    "open_segment",
    "write_segment",
]
