"""What runs inside the walls: the standard library only, so that nothing of the project is needed there."""
