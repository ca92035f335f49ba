"""TubeMQ's protocol: frames, requests, connections."""
