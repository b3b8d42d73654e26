"""Halos: ghost points filled by neighbours, and boundary points by rules."""
