"""Errors and warnings about exports of the Distributed Array Protocol, by the rule that is broken.

Rule ids: E for the export, D for all dimensions, B, C, U and N for block, cyclic, unstructured and
undistributed dimensions, G for the exports of all processes compared with each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pencils.errors import PencilsError


class Finding(Exception):  # noqa: N818 - the children that are raised end in Error or Warning
    """An error or a warning about an export: where, and by which rule. It can be pickled.

    Parameters
    ----------
    text : str
        What was found, what is allowed, and what to do.
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
    """The export breaks a rule of the protocol, or cannot be used."""


class StructureError(DAPError):
    """Keys or their types are not those of an export (rules E and D)."""


class VersionError(StructureError):
    """The version of the protocol is not supported (rule E2)."""


class SemanticError(DAPError):
    """The values of one process contradict each other (rules B, C, U and N)."""


class CollectiveError(DAPError):
    """The exports of several processes do not fit together (rules G)."""


class UnsupportedError(DAPError):
    """Valid input that this protocol version cannot represent, or pencils cannot use."""


class DAPWarning(Finding, UserWarning):
    """An irregular export that is accepted: an unknown key, or a list instead of a tuple."""


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


@dataclass(slots=True)
class Findings:
    """Errors and warnings about one export, in the order in which they are found.

    Parameters
    ----------
    lenient : bool
        Whether known deviations from the protocol are accepted with a warning.
    """

    lenient: bool = False
    version: str | None = None
    dim: int | None = None
    found: list[Finding] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """Number of errors so far."""
        return sum(isinstance(one, DAPError) for one in self.found)

    def error(self, code: str, text: str, key: str | None = None) -> None:
        """Add an error: a rule is broken."""
        self.found.append(
            error_class(code)(text, code=code, dim=self.dim, key=key, version=self.version)
        )

    def warn(self, code: str, text: str, key: str | None = None) -> None:
        """Add a warning: an irregular value is accepted."""
        self.found.append(DAPWarning(text, code=code, dim=self.dim, key=key, version=self.version))

    def accepts_list(self, code: str, wanted: str, key: str) -> bool:
        """Whether a list is accepted instead of what is expected: only if lenient."""
        if self.lenient:
            self.warn("K7", f"a list was read as {wanted}; pass {wanted}", key)
        else:
            self.error(code, f"got a list, expected {wanted}; lenient=True accepts it", key)
        return self.lenient
