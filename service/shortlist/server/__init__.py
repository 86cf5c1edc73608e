"""The HTTP service. Nothing outside of this package knows HTTP, but the client."""
