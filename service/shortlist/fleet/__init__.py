"""More than one process: a supervisor and the processes that serve for it; heads in shards, and their merge."""
