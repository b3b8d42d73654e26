"""Collectives of simulated ranks.

Begin reading with `slots`: what ranks contribute, when they can continue, and what they get.
`calls` has the methods that programs call, `objects` those parts that move Python objects;
`division` and `grids` make communicators.
"""
