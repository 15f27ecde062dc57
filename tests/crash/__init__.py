"""What a lake holds after its process was killed, or after a storage or SQL call failed."""
