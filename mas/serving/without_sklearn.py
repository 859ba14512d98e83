"""Keeps transformers from importing scikit-learn, and with it scipy and pandas, where they are installed.

Only assisted decoding uses them, which mas does not do. They are a sixth of the time that `mas train` takes to start.
"""

import sys

from transformers.utils.import_utils import is_sklearn_available

if "sklearn" not in sys.modules:
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # "there is none", to whoever looks for it
    try:
        is_sklearn_available()  # remembers its answer
    finally:
        del sys.modules["sklearn"]
