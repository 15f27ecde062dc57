"""The ``indexlake`` command."""
