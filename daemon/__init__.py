"""The sockets, threads, time and files around fastwire. The folder ``daemon`` installs as ``fastwire_daemon``."""
