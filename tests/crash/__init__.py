"""The daemon as a child process that is killed, stopped and starved, and readers that watch the folder meanwhile."""
