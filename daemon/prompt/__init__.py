"""For people at a prompt: blocking calls for scripts and notebooks, whose records are Arrow columns.

They may be called from any thread, also where a loop runs, as in a notebook: each has a thread with a loop of its own.
"""
