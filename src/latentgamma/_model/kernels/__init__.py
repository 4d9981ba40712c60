"""Fast execution of several steps of the sparse form; see README.md beside this file."""
