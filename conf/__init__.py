"""Sample configurations and systemd units, as package data. An editable install finds them only beside this file."""
