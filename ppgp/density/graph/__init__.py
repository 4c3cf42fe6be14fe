"""Record a density and its gradient as a graph, simplify it, and run it."""
