"""The progress bar of inference methods, which is that of all layers."""

from ..numerics.progress import bar

__all__ = ["bar"]
