"""Keeps transformers from importing scikit-learn and scipy, and with them pandas, where they are installed.

Only assisted decoding and the losses of image models use them, which mas does not do. Loading scikit-learn takes a
sixth of the time that `mas train` needs to start, loading scipy an eighth.
"""

import sys

from transformers.utils.import_utils import is_scipy_available, is_sklearn_available

for name, is_available in (("sklearn", is_sklearn_available), ("scipy", is_scipy_available)):
    if name not in sys.modules:
        sys.modules[name] = None  # type: ignore[assignment]  # None: Python finds no such package
        try:
            is_available.cache_clear()
            is_available()  # remembers its answer
        finally:
            del sys.modules[name]
