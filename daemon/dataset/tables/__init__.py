"""Tables over the files of a dataset: Delta and Iceberg behind one contract."""
