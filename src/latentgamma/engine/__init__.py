"""Circuits of soft facts, and how they run."""
