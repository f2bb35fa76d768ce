"""The mutants that cargo-mutants lists, as switches."""

import json
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

from .listed import Fault
from .switches import Misfit, Switch, instead, on


@dataclass(frozen=True)
class Survivor:
    """A mutant that no test need notice."""

    mutant: str
    source: str
    reason: str


class File:
    """A source file, and its syntax."""

    def __init__(self, path: Path, parser):
        self.text = path.read_bytes()
        self.tree = parser.parse(self.text)
        self.lines = self.text.splitlines(keepends=True)

    def offset(self, place: dict) -> int:
        """Byte of a line and a column, both from 1; columns count characters."""
        line = self.lines[place["line"] - 1].decode()
        before = len(b"".join(self.lines[:place["line"] - 1]))
        return before + len(line[:place["column"] - 1].encode())

    def part(self, start: int, end: int) -> str:
        return self.text[start:end].decode()

    def node(self, start: int, end: int):
        return self.tree.root_node.descendant_for_byte_range(start, end)

    def around(self, start: int, end: int, *kinds: str):
        """The smallest node of one of these kinds that holds the range."""
        node = self.node(start, end)
        while node is not None and node.type not in kinds:
            node = node.parent
        if node is None:
            raise Misfit(f"no {' or '.join(kinds)} around {self.part(start, end)!r}")
        return node


def beginning(left):
    """Where the left operand begins: the grammar takes `a = b..(c) * d` for a call of an assignment, times d."""
    node = left
    while node.children:
        called = node.child_by_field_name("function")
        if node.type == "call_expression" and called.type == "assignment_expression":
            return node.child_by_field_name("arguments")
        node = node.children[0]
    return left


def switch(file: File, number: int, mutant: dict) -> Switch:
    """The switch of one mutant."""
    start, end = file.offset(mutant["span"]["start"]), file.offset(mutant["span"]["end"])
    new = mutant["replacement"]
    match mutant["genre"]:
        case "FnValue" if "impl " in mutant["function"]["return_type"]:
            # Both must be of one type.
            if new != "::std::iter::empty()":
                raise Misfit("its type has no name")
            return Switch(number, start, end, "({ ", f" }}).take(if {on(number)} {{ 0 }} else {{ usize::MAX }})")
        case "FnValue":
            return Switch(number, start, start, f"if {on(number)} {{ return {new}; }} ")
        case "BinaryOperator":
            whole = file.around(start, end, "binary_expression", "compound_assignment_expr", "let_chain")
            if whole.type == "let_chain":
                raise Misfit("a pattern can only be joined by &&")
            first = beginning(whole.child_by_field_name("left"))
            left, right = file.part(first.start_byte, start), file.part(end, whole.end_byte)
            return instead(number, first.start_byte, whole.end_byte, f"{left}{new}{right}")
        case "UnaryOperator":
            whole = file.around(start, end, "unary_expression")
            return instead(number, whole.start_byte, whole.end_byte, new + file.part(end, whole.end_byte))
        case "MatchArmGuard":
            return instead(number, start, end, new)
        case "MatchArm":
            pattern = file.around(start, start + 1, "match_arm").child_by_field_name("pattern")
            guard = pattern.child_by_field_name("condition")
            if guard is None:
                return Switch(number, pattern.end_byte, pattern.end_byte, f" if !{on(number)} ")
            return Switch(number, guard.start_byte, guard.end_byte, f"!{on(number)} && (", ")")
        case "StructField":
            whole = file.around(start, end, "struct_expression")
            behind = file.part(end, whole.end_byte).lstrip().removeprefix(",")
            return instead(number, whole.start_byte, whole.end_byte, file.part(whole.start_byte, start) + behind)
        case other:
            raise Misfit(f"mutants of genre {other} are not known")


def read(root: Path, rooms: list[str]) -> tuple[list[Fault], list[tuple[str, str]]]:
    """The mutants of these rooms, and those that cannot be written."""
    import tree_sitter
    import tree_sitter_rust

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
    command = ["cargo", "mutants", "--list", "--json"]
    for room in rooms:
        command += ["-f", f"src/{room}.rs", "-f", f"src/{room}/**"]
    listed = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    files: dict[str, File] = {}
    faults, unfit, names = [], [], {}
    for mutant in json.loads(listed):
        path = mutant["file"]
        # Apart from others in the same function by their order, so that lines above may come and go.
        name = re.sub(r":\d+:\d+:", ":", mutant["name"], count=1)
        names[name] = names.get(name, 0) + 1
        if names[name] > 1:
            name += f" ({names[name]})"
        file = files.get(path) or files.setdefault(path, File(root / path, parser))
        try:
            faults.append(Fault(name, path, [switch(file, len(faults), mutant)]))
        except Misfit as misfit:
            unfit.append((name, str(misfit)))
    return faults, unfit


def source_line(root: Path, fault: Fault) -> str:
    """The line that a mutant begins in, by which a survivor is known to be the one that was judged."""
    text = (root / fault.file).read_bytes()
    start = fault.switches[0].start
    begin = text.rfind(b"\n", 0, start) + 1
    return text[begin:text.find(b"\n", start)].decode().strip()


def survivors(root: Path) -> dict[str, Survivor]:
    """The list of survivors, by name."""
    path = root / "tests/faults/survivors.toml"
    entries = tomllib.loads(path.read_text())["survivor"] if path.exists() else []
    return {entry["mutant"]: Survivor(**entry) for entry in entries}
