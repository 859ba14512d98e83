"""What a run leaves behind: run directory, metrics, progress, report."""
