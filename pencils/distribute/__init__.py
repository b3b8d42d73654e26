"""Global data to fields and back: `partition`, `localgrid` and `gather`.

May import array and the layers below it. Replicated data are viewed without communication; data of
one rank are sent and received in pieces. Begin with `partition.partition`; `gather` inverts it.
"""
