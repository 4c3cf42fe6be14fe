"""Vecchia's approximation: each row given its nearest earlier ones."""
