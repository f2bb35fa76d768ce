"""Switches in source text: each keeps a fault beside the text that it takes the place of, and a run chooses."""

from dataclasses import dataclass


class Misfit(Exception):
    """A fault does not fit the source."""


@dataclass(frozen=True)
class Switch:
    """Text around one range of bytes of a file. `fault` is the number that turns it on."""

    fault: int
    start: int
    end: int
    before: str
    after: str = ""


def on(fault: int) -> str:
    return f"crate::planted::on({fault})"


def instead(fault: int, start: int, end: int, new: str, statement: bool = False) -> Switch:
    """`new` in place of an expression or of whole statements."""
    if statement and not new:
        return Switch(fault, start, end, f"if !{on(fault)} {{ ", " }")
    before = f"if {on(fault)} {{ {new} }} else {{ "
    if statement:
        return Switch(fault, start, end, before, " }")
    # Inner parentheses for what would be a statement there.
    return Switch(fault, start, end, f"({before}(", ") })")


@dataclass(frozen=True)
class Place:
    """Where a switch is in the written text: its whole, and the end of what is before the text that was there."""

    fault: int
    start: int
    inner: int
    end: int


def write(source: bytes, switches: list[Switch]) -> tuple[bytes, list[Place]]:
    """The text with its switches, which may lie in one another but not overlap, and where each is."""
    # An insertion lies inside of a range that begins where it is.
    ordered = sorted(switches, key=lambda s: (s.start, -s.end, s.fault))
    out, places, at = bytearray(), [], 0
    opened: list[tuple[Switch, int, int]] = []

    def close(until: int | None):
        nonlocal at
        while opened and (until is None or opened[-1][0].end <= until):
            switch, start, inner = opened.pop()
            out.extend(source[at:switch.end])
            at = max(at, switch.end)
            out.extend(switch.after.encode())
            places.append(Place(switch.fault, start, inner, len(out)))

    for switch in ordered:
        close(switch.start)
        if opened and switch.end > opened[-1][0].end:
            raise Misfit(f"faults {opened[-1][0].fault} and {switch.fault} overlap")
        out.extend(source[at:switch.start])
        at = switch.start
        start = len(out)
        out.extend(switch.before.encode())
        opened.append((switch, start, len(out)))
    close(None)
    out.extend(source[at:])
    return bytes(out), places


def blamed(places: list[Place], start: int, end: int) -> set[int]:
    """Whose fault it is that the compiler refuses bytes `start..end` of a written text."""
    def smallest(found):
        return {min(found, key=lambda p: p.end - p.start).fault} if found else set()

    inside = [p for p in places if p.start <= start and end <= p.inner]
    around = [p for p in places if p.start <= start and end <= p.end]
    # What a function returns instead may make all else of it wrong.
    returns = [p for p in places if p.inner == p.end <= start]
    last = {max(returns, key=lambda p: p.end).fault} if returns else set()
    return smallest(inside) or smallest(around) or last
