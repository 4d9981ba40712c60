"""The operator as a `torch.nn.Module`."""
