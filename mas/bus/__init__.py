"""The message bus."""
