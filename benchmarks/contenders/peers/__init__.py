"""Other projects' and papers' indexes."""
