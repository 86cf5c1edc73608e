"""Types, provenance and exact scores, which all of the exporter's packages share."""
