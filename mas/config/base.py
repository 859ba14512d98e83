"""What options are written with; see `mas.core.options`."""

from mas.core.options import Count as Count
from mas.core.options import NonNegative as NonNegative
from mas.core.options import Options as Options
from mas.core.options import Positive as Positive
from mas.core.options import Share as Share
