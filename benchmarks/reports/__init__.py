"""Pages, tables and pictures of runs."""
