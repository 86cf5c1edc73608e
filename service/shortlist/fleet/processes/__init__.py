"""Several processes that serve as one server: a supervisor, and what goes between it and its processes."""
