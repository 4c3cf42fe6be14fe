"""Saved posteriors."""
