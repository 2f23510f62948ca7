"""The GPUs that a user selects on the command line: ``--gpus 0,2-3,GPU-1a2b``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


class SelectionError(ValueError):
    """The list of GPUs cannot be parsed; the text names the wrong part and what is valid."""


class GpuSelection(Struct, frozen=True):
    """A set of GPUs by index or UUID prefix; an empty set means all GPUs.

    Attributes:
        indices: Indices in nvidia-smi's order.
        prefixes: UUID prefixes in lower case.
    """

    indices: frozenset[int] = frozenset()
    prefixes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.indices or self.prefixes)

    def includes(self, index: int, uuid: str | None) -> bool:
        """Whether the set contains a GPU.

        Args:
            index: Index of the GPU.
            uuid: Its UUID; ``None`` while it is unknown: then only the index is compared.
        """
        if not self or index in self.indices:
            return True
        return uuid is not None and uuid.lower().startswith(self.prefixes)

    def missing(self, count: int, uuids: Sequence[str]) -> list[str]:
        """The selected items that match no GPU of the machine, as the user typed them.

        Args:
            count: Number of GPUs of the machine.
            uuids: The known UUIDs; a prefix can be reported as missing only if all are known.
        """
        words = [str(index) for index in sorted(self.indices) if index >= count]
        if len(uuids) == count:
            known = [uuid.lower() for uuid in uuids]
            words += [
                prefix[:4].upper() + prefix[4:]
                for prefix in self.prefixes
                if not any(uuid.startswith(prefix) for uuid in known)
            ]
        return words


ALL = GpuSelection()

_UUID_PREFIXES = ("gpu-", "pci-")
"""How UUIDs begin; the second is that of GPUs whose maker gives them none."""


def parse_selection(text: str) -> GpuSelection:
    """Parse a list such as ``0,2-3,GPU-1a2b``.

    Raises:
        SelectionError: The list is invalid; the message is for the user who typed it.
    """
    indices: set[int] = set()
    prefixes: list[str] = []
    for raw in text.split(","):
        part = raw.strip()
        if part.lower().startswith(_UUID_PREFIXES):
            prefixes.append(part.lower())
            continue
        first, dash, last = part.partition("-")
        if not _is_index(first) or (dash and not _is_index(last)):
            raise SelectionError(
                f"cannot read {part!r} as a GPU: give indices, ranges or UUIDs, "
                "such as 0,2-3,GPU-1a2b"
            )
        low, high = int(first), int(last) if dash else int(first)
        if high < low:
            raise SelectionError(f"the range {part!r} runs backwards: write {high}-{low}")
        indices.update(range(low, high + 1))
    return GpuSelection(frozenset(indices), tuple(prefixes))


def _is_index(text: str) -> bool:
    """Whether the text is a number of at most four ASCII digits, so that a range stays small."""
    return text.isascii() and text.isdigit() and len(text) <= 4
