"""Running contenders over their settings."""
