"""A table before it is read: the names of its columns, its options, and its cells as text.

Neither torch nor pandas is imported, so that a table that cannot be used is refused at once. What
``Dataset`` and ``load`` ask of names and cells is asked by the functions of this folder.
"""
