"""A policy on disk: schema, hashes, statistics."""
