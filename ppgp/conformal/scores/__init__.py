"""Nonconformity scores and the sets they invert to, one score per file; ppgp.conformal lists them."""
