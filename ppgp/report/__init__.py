"""Reports of a comparison: a page of HTML, its figures and tables."""
