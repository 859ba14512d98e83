"""What a role has learned as text: libraries of experiences, and who edits them. Free of torch."""
