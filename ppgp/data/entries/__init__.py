"""Entries of tables: cells, columns of numbers, dates."""
