"""What turns may be charged for."""

from typing import Literal

Cost = Literal["tokens", "price", "seconds"]
