"""Where files live: a folder, an S3-compatible store or memory, behind one interface.

A path is relative to the root and never leaves it. A file appears whole or not at all, is written once and never
changed. Reads are checked against chunk checksums before anything is returned.
"""

from indexlake.storage.input_file import InputFile
from indexlake.storage.output_file import OutputFile
from indexlake.storage.path import FileInfo
from indexlake.storage.storage import Storage, StorageSpec

__all__ = ["FileInfo", "InputFile", "OutputFile", "Storage", "StorageSpec"]
