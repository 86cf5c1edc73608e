"""How arrays are laid out for the native library."""
