"""``python -m fastwire_daemon.cli`` is ``fastwire-consume``."""

from .app import main

if __name__ == "__main__":
    main()
