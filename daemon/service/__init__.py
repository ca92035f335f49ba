"""The service: it runs the pipelines of a configuration, serves HTTP and speaks to systemd."""
