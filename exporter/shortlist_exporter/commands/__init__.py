"""The commands of `shortlist` that need torch: capture, export, tune, report, shard, compact, playground."""
