"""From data to rules."""
