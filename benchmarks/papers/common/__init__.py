"""What the papers' scripts share: command lines, pages and wall times."""
