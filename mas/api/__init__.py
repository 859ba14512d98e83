"""What `import mas` offers; loaded when it is used."""
