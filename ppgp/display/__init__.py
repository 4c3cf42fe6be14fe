"""How notebooks show the objects of this library."""
