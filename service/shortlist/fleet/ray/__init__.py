"""Replicas of a repository, or of the shards of a head, on a Ray cluster: scheduling and health are Ray Serve's."""
