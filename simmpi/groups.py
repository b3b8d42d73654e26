"""Groups: ordered sets of ranks of the world."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simmpi.constants import IDENT, SIMILAR, UNDEFINED, UNEQUAL
from simmpi.exceptions import ERR_GROUP, ERR_RANK, MPIError


class Group:
    """An ordered set of ranks; null if it was freed."""

    def __init__(self, group: Group | None = None) -> None:
        self._ranks: tuple[int, ...] | None = None if group is None else group._ranks
        self._me: int | None = None if group is None else group._me

    @classmethod
    def of(cls, ranks: Iterable[int], me: int) -> Group:
        """Make a group of ranks of the world, as rank `me` sees it."""
        group = cls()
        group._ranks, group._me = tuple(ranks), me
        return group

    def __bool__(self) -> bool:
        return self._ranks is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return self._ranks == other._ranks

    __hash__ = None  # type: ignore[assignment]

    @property
    def _members(self) -> tuple[int, ...]:
        if self._ranks is None:
            raise MPIError(ERR_GROUP, "the group is null")
        return self._ranks

    def _new(self, ranks: Iterable[int]) -> Group:
        assert self._me is not None
        return Group.of(ranks, self._me)

    def Get_size(self) -> int:
        """Number of ranks."""
        return len(self._members)

    def Get_rank(self) -> int:
        """Number of this rank; UNDEFINED if it is not a member."""
        return self._members.index(self._me) if self._me in self._members else UNDEFINED

    size = property(Get_size)
    rank = property(Get_rank)

    def Translate_ranks(
        self, ranks: Sequence[int] | None = None, group: Group | None = None
    ) -> list[int]:
        """Numbers in another group of some ranks of this one; by default of all."""
        other = GROUP_EMPTY if group is None else group
        members = self._members
        if ranks is None and members == other._members:
            return list(range(len(members)))
        numbers = {rank: number for number, rank in enumerate(other._members)}
        if ranks is None:
            return [numbers.get(rank, UNDEFINED) for rank in members]
        return [numbers.get(members[rank], UNDEFINED) if rank >= 0 else rank for rank in ranks]

    @classmethod
    def Compare(cls, group1: Group, group2: Group) -> int:
        """Compare members and their order."""
        one, other = group1._members, group2._members
        if one == other:
            return IDENT
        return SIMILAR if set(one) == set(other) else UNEQUAL

    def Dup(self) -> Group:
        """Copy."""
        return self._new(self._members)

    @classmethod
    def Union(cls, group1: Group, group2: Group) -> Group:
        """Members of either group."""
        return group1._new(dict.fromkeys([*group1._members, *group2._members]))

    @classmethod
    def Intersection(cls, group1: Group, group2: Group) -> Group:
        """Members of both groups."""
        other = set(group2._members)
        return group1._new(rank for rank in group1._members if rank in other)

    Intersect = Intersection

    @classmethod
    def Difference(cls, group1: Group, group2: Group) -> Group:
        """Members of the first group that are not in the second one."""
        other = set(group2._members)
        return group1._new(rank for rank in group1._members if rank not in other)

    def Incl(self, ranks: Sequence[int]) -> Group:
        """These members, in this order."""
        self._check(ranks)
        return self._new(self._members[rank] for rank in ranks)

    def Excl(self, ranks: Sequence[int]) -> Group:
        """All other members."""
        self._check(ranks)
        gone = set(ranks)
        return self._new(rank for number, rank in enumerate(self._members) if number not in gone)

    def Range_incl(self, ranks: Iterable[tuple[int, int, int]]) -> Group:
        """Members of ranges; the last number of each is included."""
        return self.Incl(_expanded(ranks))

    def Range_excl(self, ranks: Iterable[tuple[int, int, int]]) -> Group:
        """Members outside of ranges."""
        return self.Excl(_expanded(ranks))

    def _check(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            if not 0 <= rank < self.size:
                raise MPIError(ERR_RANK, f"rank {rank}; the group has ranks 0 to {self.size - 1}")

    def Free(self) -> None:
        """Make this handle null."""
        self._ranks = None

    free = Free


def _expanded(ranges: Iterable[tuple[int, int, int]]) -> list[int]:
    found: list[int] = []
    for first, last, step in ranges:
        found += range(first, last + (1 if step > 0 else -1), step)
    return found


GROUP_NULL = Group()
GROUP_EMPTY = Group.of((), -1)
