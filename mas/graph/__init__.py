"""Teams as checked graphs, and their pictures."""
