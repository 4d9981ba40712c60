"""Fast execution of several steps of the sparse form."""
