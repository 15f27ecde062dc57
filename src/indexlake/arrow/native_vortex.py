"""Vortex's native module, loaded at the first use of a name, without the Python package around it.

``import vortex`` also imports pandas, where it is installed, and pyarrow's datasets: ten times as much as all that a
first read needs. Its functions only pass their arguments on to this module. The module is not public, so the next
version of Vortex may change it; the dependency names the version for which this holds. A program may import the package
before or after: both use the same module. Only if a thread begins to do so within the few milliseconds in which another
one loads the module here does its import fail, once.

Use it in the package's place: ``from indexlake.arrow import native_vortex``.
"""

from __future__ import annotations

import sys
import threading
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

_NAME = "vortex._lib"

_lock = threading.Lock()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    found = globals()[name] = getattr(_native(), name)
    return found


def _native() -> Any:
    with _lock:
        if "vortex" in sys.modules:
            import vortex  # noqa: F401 (waits for a thread that is importing it)
        elif _NAME not in sys.modules:
            package = find_spec("vortex")
            spec = package and PathFinder.find_spec(_NAME, package.submodule_search_locations)
            if spec is None or spec.loader is None:
                raise ModuleNotFoundError("No module named 'vortex'", name="vortex")
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[_NAME] = module
        return sys.modules[_NAME]
