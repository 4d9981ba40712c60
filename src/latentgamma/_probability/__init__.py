"""The probability of an atom over all worlds of independent facts and groups."""
