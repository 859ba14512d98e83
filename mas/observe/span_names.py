"""How the file of spans is called, and what it says beside spans."""

SPANS_NAME = "spans.jsonl"
DROPPED = "masDroppedSpans"
"""Key of a line that says how many spans found no room."""
