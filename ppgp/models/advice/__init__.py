"""Which model suits a table, and what it costs."""
