"""What is read of all processes, put together as of one server."""
