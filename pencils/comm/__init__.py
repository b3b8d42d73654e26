"""Moves bytes between ranks; knows raw NumPy arrays only."""
