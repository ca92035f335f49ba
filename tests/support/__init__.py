"""Scenes, peers, recorded bytes and their readers, for several tests."""
