"""Where teams work: one folder each."""
