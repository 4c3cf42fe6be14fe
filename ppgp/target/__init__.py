"""Where a model meets data: one log density with its compiled gradient."""

from .target import Target

__all__ = ["Target"]
