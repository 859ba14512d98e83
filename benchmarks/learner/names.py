"""Who competes in `mas bench learner`: short names for options and workload files, and what the tables call them."""

OURS = "mas"
PADDED = "padded"
PACKED = "packed"
TRL = "trl"
TRL_CHECKPOINTED = "trl_checkpointed"
FLOOR = "floor"

ROWS = {
    OURS: "mas",
    PADDED: "PEFT set_adapter, padded",
    PACKED: "PEFT set_adapter, packed",
    TRL: "TRL GRPOTrainer",
    TRL_CHECKPOINTED: "TRL GRPOTrainer, checkpointing",
    FLOOR: "frozen base floor",
}
"""Short name -> row, in the table's order."""

OPTIONAL = {
    "packed": (PACKED,),
    "trl": (TRL, TRL_CHECKPOINTED),
    "checkpointing": (TRL_CHECKPOINTED,),
    "floor": (FLOOR,),
}
"""What `--without` takes -> the rows that it leaves out. The padded loop says which gradients are right: it stays."""

REFERENCE = PADDED
"""Ratios are to this row; in a sweep, to its first point."""
