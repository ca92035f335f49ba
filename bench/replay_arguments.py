"""The command line of the replaying servers, which ``child.serving`` starts."""

import argparse
from collections.abc import Sequence


def replay_arguments(description: str | None, codecs: Sequence[str]) -> argparse.Namespace:
    """Read the arguments, and add ``count``: the batches of each partition."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in all partitions")
    parser.add_argument("--size", type=int, default=100, help="bytes of one message")
    parser.add_argument("--batch", type=int, default=1000, help="messages that are stored or sent together")
    parser.add_argument("--codec", default="none", choices=codecs)
    parser.add_argument("--partitions", type=int, default=4)
    args = parser.parse_args()
    args.count = -(-args.messages // (args.batch * args.partitions))
    return args
