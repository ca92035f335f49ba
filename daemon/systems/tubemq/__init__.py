"""TubeMQ in the daemon: connections to Masters and Brokers, and the source."""
