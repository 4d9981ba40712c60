"""Compiled kernels of the sparse operator."""
