"""What can be proved of a model, without torch."""
