"""Garbage collection without what a start has loaded."""

import gc


def settle(*, again: bool = False) -> None:
    """Exempt all objects that are alive from garbage collection: modules and classes above all, which never go.

    Each full collection would otherwise visit some hundred thousand of them, and bring their pages back. Objects that
    are exempt already stay so; with ``again`` those that have become garbage since are freed.
    """
    if again:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
