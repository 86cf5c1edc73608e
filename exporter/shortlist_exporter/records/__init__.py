"""Records that an export or a tune leaves beside a bundle."""
