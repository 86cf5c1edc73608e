"""Pages for people: what a browser shows of the server."""
