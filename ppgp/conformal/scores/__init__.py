"""Nonconformity scores and the sets they invert to, one a file; ``ppgp.conformal`` lists them."""
