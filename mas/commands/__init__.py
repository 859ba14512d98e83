"""Commands of `mas` that put several packages together. Each module is imported when one of its commands is given."""
