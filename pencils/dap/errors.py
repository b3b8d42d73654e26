"""What can be wrong with an export of the Distributed Array Protocol, by the rule that it breaks.

Rule ids: E for the export, D for every dimension, B, C, U and N for the kinds of dimension, G for
all processes together.
"""

from __future__ import annotations

from pencils.errors import PencilsError


class Finding(Exception):  # noqa: N818 - the children that are raised end in Error or Warning
    """What was found, where, and by which rule; travels between processes.

    Parameters
    ----------
    text : str
        What was found, what is required, and what to do.
    code : str
        Id of the rule, such as "B3".
    dim : int, optional
        The dimension; None for the whole export.
    rank : int, optional
        The process; None if only one process was looked at.
    key : str, optional
        The key of the dictionary.
    version : str, optional
        The version of the protocol that the export claims.
    """

    def __init__(
        self,
        text: str,
        *,
        code: str = "",
        dim: int | None = None,
        rank: int | None = None,
        key: str | None = None,
        version: str | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.code = code
        self.dim = dim
        self.rank = rank
        self.key = key
        self.version = version

    def __str__(self) -> str:
        places = [
            f"{name} {value!r}"
            for name, value in (("rank", self.rank), ("dimension", self.dim), ("key", self.key))
            if value is not None
        ]
        where = f"{', '.join(places)}: " if places else ""
        version = f" of version {self.version}" if self.version else ""
        rule = f" [rule {self.code}{version}]" if self.code else ""
        return f"{where}{self.text}{rule}"


class DAPError(Finding, PencilsError, ValueError):
    """An export breaks a rule of the protocol, or cannot be used."""


class StructureError(DAPError):
    """Keys or their types are not those of an export (rules E and D)."""


class VersionError(StructureError):
    """The version is not one that is understood (rule E2)."""


class SemanticError(DAPError):
    """The values of one process contradict each other (rules B, C, U and N)."""


class CollectiveError(DAPError):
    """The exports of several processes do not fit together (rules G)."""


class UnsupportedError(DAPError):
    """Something legal that cannot be said, or cannot be used."""


class DAPWarning(Finding, UserWarning):
    """Something that is read all the same: an unknown key, a list for a tuple."""


def error_class(code: str) -> type[DAPError]:
    """Class of the errors of a rule.

    Examples
    --------
    >>> error_class("E2").__name__, error_class("D4").__name__, error_class("G5").__name__
    ('VersionError', 'StructureError', 'CollectiveError')
    """
    if code == "E2":
        return VersionError
    if code[0] == "G":
        return CollectiveError
    return StructureError if code[0] in "ED" else SemanticError
