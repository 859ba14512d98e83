"""Task sources: which tasks a step plays, and the arms that they come from."""
