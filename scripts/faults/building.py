"""A copy of the project that holds all faults, built once."""

import json
import os
import re
import subprocess
import tomllib
import zlib
from dataclasses import dataclass
from pathlib import Path

from .listed import Fault
from .switches import Misfit, Place, blamed, write

PLANTED = """\
//! Which fault is on in this process. Not a part of the project.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const FAULTS: usize = @COUNT@;
static MET: [AtomicBool; FAULTS] = [const { AtomicBool::new(false) }; FAULTS];
static ON: LazyLock<Option<usize>> =
    LazyLock::new(|| std::env::var("KAROO_FAULT").ok().map(|fault| fault.parse().unwrap()));
static NOTES: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os("KAROO_FAULTS_MET")?;
    Some(File::options().create(true).truncate(false).write(true).open(path).unwrap())
});

/// Whether a fault is on. Notes that the process came here.
#[inline]
pub fn on(fault: usize) -> bool {
    if !MET[fault].load(Relaxed) {
        note(fault);
    }
    *ON == Some(fault)
}

#[cold]
fn note(fault: usize) {
    MET[fault].store(true, Relaxed);
    if let Some(notes) = &*NOTES {
        notes.write_all_at(&[1], fault as u64).unwrap();
    }
}
"""
# A test executable that compiles a file of the library once more.
SHARED_SOURCE = re.compile(rb'#\[path = "[./]*/src/')


def update(path: Path, text: bytes):
    """Writes a file if it is another, so that only what changed is compiled again."""
    if not path.exists() or path.read_bytes() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)


def crate_of(file: str) -> str:
    """The folder of the crate that a file belongs to, with a slash at its end; none for the library's own."""
    match = re.match(r"crates/[^/]+/", file)
    return match[0] if match else ""


def crate_roots(files: dict[str, bytes], faults: list[Fault]) -> list[str]:
    """Roots of the library, of crates that have faults, and of test executables that compile files of the library."""
    roots = sorted({"src/lib.rs", *(crate_of(fault.file) + "src/lib.rs" for fault in faults)})
    for file in files:
        if match := re.fullmatch(r"tests/(\w+)\.rs|tests/(\w+)/main\.rs", file):
            folder = f"tests/{match[2]}/" if match[2] else file
            texts = (text for f, text in files.items() if f.startswith(folder) and f.endswith(".rs"))
            if any(SHARED_SOURCE.search(text) for text in texts):
                roots.append(file)
    return roots


@dataclass
class Built:
    """A copy that is built, with all that a hunt needs."""

    tree: Path
    # Whether the faults are mutants.
    mutants: bool
    faults: list[Fault]
    # Mutants that no switch can be, with why.
    unfit: dict[str, str]
    # Faults that do not compile, with what the compiler says.
    dropped: dict[int, str]
    # Executables, as cargo tells of them.
    executables: list[dict]
    # Variables for the executables.
    environment: dict[str, str]


class Copy:
    """The copy in target/faults."""

    def __init__(self, root: Path, name: str):
        self.root = root
        self.tree = root / "target/faults" / name
        self.places: dict[str, list[Place]] = {}
        # As they were when the faults were fitted to them, though somebody may go on working.
        listed = subprocess.run(["git", "ls-files", "-coz", "--exclude-standard"], cwd=root, check=True,
                                stdout=subprocess.PIPE, text=True).stdout
        names = [name for name in listed.split("\0") if (root / name).is_file()]
        self.files = {name: (root / name).read_bytes() for name in names}
        self.modes = {name: (root / name).stat().st_mode for name in names}
        # A target of its own: cargo would take what it built of one copy for that of another.
        self.environment = dict(os.environ) | {"CARGO_TARGET_DIR": str(root / f"target/faults/{name}-target")}

    def write(self, faults: list[Fault], dropped: set[int]):
        """Brings the copy up to date, with all faults but those that are `dropped`."""
        roots = crate_roots(self.files, faults)
        switches = {}
        for number, fault in enumerate(faults):
            for switch in fault.switches if number not in dropped else []:
                switches.setdefault(fault.file, []).append(switch)
        wanted = {*self.files, "src/planted.rs"}
        for path in self.tree.rglob("*"):
            if path.is_file() and str(path.relative_to(self.tree)) not in wanted:
                path.unlink()
        for file, source in self.files.items():
            source, self.places[file] = write(source, switches.get(file, []))
            if file in roots:
                planted = os.path.relpath("src/planted.rs", os.path.dirname(file))
                source += f'\n#[allow(warnings)]\n#[path = "{planted}"]\nmod planted;\n'.encode()
            update(self.tree / file, source)
            os.chmod(self.tree / file, self.modes[file])
        update(self.tree / "src/planted.rs", PLANTED.replace("@COUNT@", str(max(1, len(faults)))).encode())

    def cargo(self, *arguments: str) -> tuple[list[dict], list[dict]]:
        """What cargo built, and which errors there were."""
        command = ["cargo", *arguments, "--message-format=json"]
        run = subprocess.run(command, cwd=self.tree, env=self.environment, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        messages = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        errors = [m["message"] for m in messages if m["reason"] == "compiler-message"
                  and m["message"]["level"].startswith("error") and m["message"]["spans"]]
        if run.returncode and not errors:
            raise SystemExit(f"{' '.join(command)} in {self.tree}:\n{run.stderr[-4000:]}")
        return [m for m in messages if m["reason"] == "compiler-artifact"], errors

    def packages(self, faults: list[Fault]) -> list[str]:
        """Arguments of cargo that choose the library and the crates that have faults."""
        manifests = sorted({crate_of(fault.file) + "Cargo.toml" for fault in faults} | {"Cargo.toml"})
        names = [tomllib.loads(self.files[manifest].decode())["package"]["name"] for manifest in manifests]
        return [argument for name in names for argument in ("-p", name)]

    def build(self, faults: list[Fault], unfit: dict[str, str], may_drop: bool) -> Built:
        """Builds the copy, without the faults that do not compile if it may drop them."""
        # What did not compile does not where its file is the same.
        notes = self.tree.parent / f"{self.tree.name}-dropped.json"
        before = json.loads(notes.read_text()) if may_drop and notes.exists() else {}
        keys = [f"{zlib.crc32(self.files[fault.file])} {fault.name}" for fault in faults]
        dropped = {number: before[key] for number, key in enumerate(keys) if key in before}
        # As scripts/test builds it.
        what = [*self.packages(faults), "--features", "nic"]
        steps = [("check", "--lib", *what), ("test", "--no-run", "--lib", "--bins", "--test", "*", *what)]
        while True:
            self.write(faults, set(dropped))
            built, errors = self.cargo(*steps[0])
            found = {}
            for error in errors:
                for span in error["spans"]:
                    if span["is_primary"]:
                        # Of a macro, where it is used.
                        while span["expansion"]:
                            span = span["expansion"]["span"]
                        file = os.path.relpath(self.tree / span["file_name"], self.tree)
                        numbers = blamed(self.places.get(file, []), span["byte_start"], span["byte_end"])
                        found |= {number: error["message"] for number in numbers}
            if errors and not (found and may_drop):
                names = ", ".join(faults[number].name for number in found)
                raise Misfit(f"the copy does not compile ({names}):\n{errors[0]['rendered']}")
            dropped |= found
            if not errors and len(steps) == 1:
                return Built(self.tree, may_drop, faults, unfit, dropped, built, self.environment)
            if errors:
                notes.write_text(json.dumps(before | {keys[number]: why for number, why in dropped.items()}))
                print(f"{len(dropped)} faults so far do not compile", flush=True)
            else:
                steps.pop(0)
