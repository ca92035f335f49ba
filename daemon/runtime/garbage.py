"""Garbage collection without what a start has loaded."""

import gc

__all__ = ["settle"]


_settled = False


def settle() -> None:
    """Exempt all objects that are alive from garbage collection: modules and classes above all, which never go.

    Each full collection would otherwise visit some hundred thousand of them, and bring their pages back. Those of an
    earlier call are looked at once more; those that somebody else has exempted before the first call are not.
    """
    global _settled
    if _settled:
        gc.unfreeze()
    _settled = True
    gc.collect()
    gc.freeze()
