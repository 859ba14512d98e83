"""Algorithms as files: what to write one of one's own with. See docs/own_algorithm.md."""

from mas.algorithms.base import Algorithm as Algorithm
from mas.algorithms.base import NoOptions as NoOptions
from mas.algorithms.base import Recipe as Recipe
from mas.algorithms.base import Row as Row
from mas.core.options import Options as Options
