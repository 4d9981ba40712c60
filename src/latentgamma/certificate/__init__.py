"""What can be proved of a model."""
