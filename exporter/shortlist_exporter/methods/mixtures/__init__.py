"""Methods that serve mixtures."""
