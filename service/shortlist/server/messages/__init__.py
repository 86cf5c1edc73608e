"""Bodies and headers of HTTP messages."""
