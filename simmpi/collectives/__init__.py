"""Collectives of simulated ranks.

Begin reading with `slots`: what ranks contribute, when they can continue, and what they get.
`calls` has the methods that programs call; `grids` makes communicators.
"""
