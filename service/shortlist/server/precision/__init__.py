"""Served precision: live rows are asked again exactly; what came of it is counted, shown and acted on."""
