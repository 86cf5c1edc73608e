"""Who may do what: API keys with their roles, and the hosts and origins that requests may name."""
