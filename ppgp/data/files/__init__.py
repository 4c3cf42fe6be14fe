"""Tables in files: delimited text, Parquet, and the published data sets."""
