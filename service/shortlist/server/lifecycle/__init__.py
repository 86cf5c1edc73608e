"""Which versions of which models are served: watching the repository, versions, aliases, loads one at a time."""
