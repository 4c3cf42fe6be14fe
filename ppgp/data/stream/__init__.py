"""Rows that do not fit in memory."""
