"""Option models, free of torch: every default lives here once."""
