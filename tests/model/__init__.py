"""A model checker of the commit protocol: the real code of the dataset over a simulated disk.

``world`` is the disk, ``broker`` and ``reader`` are a message system and a pipeline in miniature, ``run`` steps them
and judges what a plain reader would see, ``explore`` chooses what happens next, ``weakened`` holds protocols that must
fail.
"""
