"""Faults that are listed in tests/faults: what the code would wrongly be, and the words for it."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from .switches import Misfit, Switch, instead


@dataclass
class Fault:
    """One fault. `reason` says why it cannot matter, if it cannot."""

    name: str
    file: str
    switches: list[Switch] = field(default_factory=list)
    reason: str | None = None


def place(source: str, old: str, after: str | None) -> tuple[int, int]:
    """Bytes of the only occurrence of `old`, or of the first behind the only one of `after`."""
    begin = 0
    if after is not None:
        if source.count(after) != 1:
            raise Misfit(f"{after!r} occurs {source.count(after)} times")
        begin = source.index(after) + len(after)
    elif source.count(old) != 1:
        raise Misfit(f"{old!r} occurs {source.count(old)} times")
    start = source.find(old, begin)
    if start < 0:
        raise Misfit(f"{old!r} does not occur behind {after!r}")
    start = len(source[:start].encode())
    return start, start + len(old.encode())


def read(root: Path) -> list[Fault]:
    """All faults of the lists. A fault is one `old` and `new`, or several `edits`; with `;` at its end, `old` is statements."""
    faults = []
    for path in sorted((root / "tests/faults").glob("*.toml")):
        for entry in tomllib.loads(path.read_text()).get("fault", []):
            number = len(faults)
            fault = Fault(entry["name"], entry["file"], reason=entry.get("reason"))
            source = (root / fault.file).read_text()
            for edit in entry.get("edits", [entry]):
                old, new = edit["old"].strip(), edit["new"].strip()
                try:
                    start, end = place(source, old, edit.get("after"))
                except Misfit as misfit:
                    raise Misfit(f"{path.name}: {fault.name} ({fault.file}): {misfit}") from None
                statement = old.endswith((";", "}")) and edit.get("statement", True)
                fault.switches.append(instead(number, start, end, new, statement))
            faults.append(fault)
    return faults
