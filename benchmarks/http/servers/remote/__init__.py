"""Files that run inside other projects' servers."""
