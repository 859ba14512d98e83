"""Updates: what a step's episodes change in the adapters."""
