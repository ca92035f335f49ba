"""Parquet files from Arrow columns: row groups, pages and footers, without a file, a thread or an Arrow library.

``schema`` maps Arrow types to Parquet's, ``nested`` makes definition and repetition levels, ``values`` encodes values,
``column`` lays out the pages of a column chunk, ``pageindex`` tells where they lie,
``file`` is the entrance. The format is parquet-format 2.11.
"""
