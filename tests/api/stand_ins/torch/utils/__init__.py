"""Stands in for ``torch.utils``."""
