"""Output layers from files of any kind: one module a format, each with `read(path, choice) -> Layer`."""
