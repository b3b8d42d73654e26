"""Point-to-point messages of simulated ranks, and the requests of all operations.

`operation` is what a rank starts and completes; `matching` pairs sends and receives; the methods
that programs call are in `point_to_point` and `requests`.
"""
