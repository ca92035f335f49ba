"""What several tests use: scenes, peers, recorded bytes and their readers."""
