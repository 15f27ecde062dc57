"""Arrow below the types: kernels, buffers, and how large a batch may get."""
