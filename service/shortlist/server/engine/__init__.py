"""A request's way through the server, between its decoding and its encoding."""
