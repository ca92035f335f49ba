"""Services that every part of the process uses: errors, logs, metrics, the memory budget, background tasks."""
