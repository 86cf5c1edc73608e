"""What is measured, a module a contender."""
