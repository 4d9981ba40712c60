"""The min/max closure of soft facts, hard or smooth, with gradients."""
