"""``format("fastwire")`` for writing: the rows of a frame become records of topics of any system."""
