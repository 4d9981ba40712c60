"""Logic rules as an exact, differentiable PyTorch layer, and back."""
