"""Datasets: folders of plain files that any number of writers write exactly once.

``writer`` is the commit protocol, over ``storage`` (a folder or an object store) and ``log`` (entries and checkpoints);
``description`` and ``level`` define the folders, ``tables`` publish files as commits of a table, ``proof`` checks a
dataset, ``deadletters`` reads and replays its dead letters.
"""
