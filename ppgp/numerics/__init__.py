"""Linear algebra, quadrature and distributions that know no model."""
