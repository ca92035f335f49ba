"""Datasets: folders of plain files that any number of writers write exactly once.

``writer`` is the commit protocol, over ``storage`` (its operations) and ``disk`` (the operating system); ``log``,
``checkpoint``, ``description`` and ``level`` define the files and folders; ``verify`` checks a dataset.
"""
