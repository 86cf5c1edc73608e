"""Load on the HTTP service: overhead beside an echo, a soak over its capacity, and peers side by side."""
