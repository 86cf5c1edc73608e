"""What several processes, shards and machines cost and bring."""
