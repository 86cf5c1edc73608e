"""Which requests are accepted, and which are computed together, and when."""
