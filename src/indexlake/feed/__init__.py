"""The change feed: which rows each commit inserted, updated and deleted, in bounded memory."""
