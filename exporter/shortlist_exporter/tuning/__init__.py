"""The fastest head that keeps a promise: what to try (`space`), how long (`search`), how it is judged (`choice`)."""
