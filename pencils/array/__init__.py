"""Fields: local blocks that are global in meaning."""
