"""What the exporter's packages share."""
