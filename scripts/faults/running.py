"""Tests of the copy: which meet a fault, and which notice it."""

import os
import resource
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

# Of the data that a process may have, and of a file: a fault must not take the machine.
LIMITS = [(resource.RLIMIT_DATA, 8 << 30), (resource.RLIMIT_FSIZE, 2 << 30), (resource.RLIMIT_CORE, 0)]
# The executables of unit tests: that of the library, and with a crate's name behind it those of crates.
UNIT_TESTS = "unit"


@dataclass(frozen=True)
class Test:
    """One test of one executable."""

    executable: str
    name: str

    @property
    def is_unit(self):
        return self.executable.split()[0] == UNIT_TESTS

    def __str__(self):
        return f"{self.executable}: {self.name}"


@dataclass
class Known:
    """What a run without a fault told of a test."""

    seconds: float
    met: frozenset[int]


@dataclass
class Ran:
    """How tests went: the first that failed, or what else did."""

    failed: str | None
    hung: bool = False
    output: str = ""


class Tests:
    """The executables of the copy."""

    def __init__(self, tree: Path, built: list[dict], environment: dict):
        self.tree = tree
        self.environment = environment | {"RUST_BACKTRACE": "0", "TMPDIR": str(tree.parent / "tmp")}
        os.makedirs(self.environment["TMPDIR"], exist_ok=True)
        self.paths, self.folders = {}, {}
        for artifact in built:
            if artifact["profile"]["test"] and artifact["executable"]:
                kind, name = artifact["target"]["kind"][0], artifact["target"]["name"]
                folder = Path(artifact["manifest_path"]).parent
                unit = UNIT_TESTS if folder == tree else f"{UNIT_TESTS} {folder.name}"
                name = {"lib": unit, "bin": "main"}.get(kind, name)
                self.paths[name], self.folders[name] = artifact["executable"], folder

    def listed(self) -> list[Test]:
        """All tests."""
        tests = []
        for executable, path in self.paths.items():
            run = subprocess.run([path, "--list"], cwd=self.tree, env=self.environment, check=True,
                                 stdout=subprocess.PIPE, text=True)
            names = (line.removesuffix(": test") for line in run.stdout.splitlines() if line.endswith(": test"))
            tests += [Test(executable, name) for name in names]
        return tests

    def run(self, executable: str, names: list[str], limit: float, **variables: str) -> Ran:
        """Runs tests of an executable until one fails, for `limit` seconds at most."""
        command = [self.paths[executable], "--exact", "--test-threads", "2", *names]

        def begin():
            os.setsid()
            for what, most in LIMITS:
                resource.setrlimit(what, (most, most))

        process = subprocess.Popen(command, cwd=self.folders[executable], env=self.environment | variables, preexec_fn=begin,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   errors="replace")
        hung = threading.Event()

        def end():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

        timer = threading.Timer(limit, lambda: (hung.set(), end()))
        timer.start()
        failed, output = None, []
        for line in process.stdout:
            output.append(line)
            if line.startswith("test ") and line.rstrip().endswith("... FAILED"):
                failed = line.split()[1]
                break
        if failed and len(names) > 1:
            end()
        process.stdout.read()
        code = process.wait()
        timer.cancel()
        # What it started and left.
        end()
        if hung.is_set():
            return Ran(names[0] if len(names) == 1 else "a hang", True)
        if code and not failed:
            failed = names[0] if len(names) == 1 else f"an end by {code}"
        return Ran(failed, output="".join(output[-60:]))


def worker_threads(jobs: int, tasks: list, do):
    """Does all tasks, `jobs` at a time."""
    lock, queue = threading.Lock(), list(reversed(tasks))
    errors = []

    def work():
        while not errors:
            with lock:
                if not queue:
                    return
                task = queue.pop()
            try:
                do(task)
            except BaseException as error:  # noqa: BLE001 - told by the caller's thread
                errors.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(1)
    if errors:
        raise errors[0]


@dataclass
class Outcome:
    """What became of a fault: `caught`, `hangs`, `missed` or `unmet`, and by which test."""

    what: str
    by: str = ""


@dataclass
class Hunt:
    """Looks for tests that notice faults."""

    tests: Tests
    known: dict[Test, Known]
    # Executables of which no two tests run at a time.
    alone: set[str]
    # Seconds of tests that are spent on a fault beyond the unit tests, if there is an end.
    budget: float | None
    kills: dict[tuple[str, Test], int] = field(default_factory=dict)
    lonely: threading.Lock = field(default_factory=threading.Lock)

    def find(self, number: int, file: str) -> Outcome:
        """Runs the tests that meet a fault: the units' of its room, all others of units, and the rest, quick ones first."""
        meet = [test for test, known in self.known.items() if number in known.met]
        if not meet:
            return Outcome("unmet")
        crate, _, path = file.partition("/src/") if file.startswith("crates/") else ("", "", file.removeprefix("src/"))
        home = f"{UNIT_TESTS} {Path(crate).name}".strip()
        room = path.removesuffix(".rs").split("/")[0] + "::"
        units = [test for test in meet if test.is_unit]
        own = [test for test in units if test.executable == home and test.name.startswith(room)]
        others = [[test for test in units if test.executable == name and test not in own]
                  for name in sorted({test.executable for test in units}, key=lambda name: (name != home, name))]
        rest = [test for test in meet if not test.is_unit]
        rest.sort(key=lambda t: (t.executable in self.alone, -self.kills.get((file, t), 0), self.known[t].seconds))
        groups = [own, *others] + [[test] for test in rest]
        spent = 0.0
        for group in filter(None, groups):
            seconds = sum(self.known[test].seconds for test in group)
            if not group[0].is_unit:
                spent += seconds
                if self.budget is not None and spent > self.budget:
                    break
            # Hangs of others are confirmed.
            limit = (20 if group[0].is_unit else 8) + 6 * seconds
            outcome = self.try_group(number, group, limit)
            if outcome:
                for test in group:
                    if len(group) == 1 or test.name in outcome.by:
                        self.kills[file, test] = self.kills.get((file, test), 0) + 1
                return outcome
        return Outcome("missed", f"{len(meet)} tests meet it")

    def try_group(self, number: int, group: list[Test], limit: float) -> Outcome | None:
        executable, names = group[0].executable, [test.name for test in group]

        def run(**variables):
            if executable in self.alone:
                with self.lonely:
                    return self.tests.run(executable, names, limit, **variables)
            return self.tests.run(executable, names, limit, **variables)

        ran = run(KAROO_FAULT=str(number))
        if ran.failed is None:
            return None
        # Tests of more than this process may fail, and all take too long, for the machine's reasons.
        if (ran.hung or not group[0].is_unit) and (run().failed or run(KAROO_FAULT=str(number)).failed is None):
            return None
        return Outcome("hangs" if ran.hung else "caught", f"{executable}: {ran.failed}")


def baseline(tests: Tests, chosen: list[Test], jobs: int, alone: set[str]) -> tuple[dict[Test, Known], dict[Test, str]]:
    """Runs each test by itself, without a fault: how long it takes and which faults it meets; and what those print that fail."""
    folder = tests.tree.parent / "met"
    os.makedirs(folder, exist_ok=True)
    known, failed, lonely = {}, {}, threading.Lock()

    def look(task):
        index, test = task
        notes = folder / str(index)
        for _ in range(2):
            # Tests have processes of users without rights, too.
            notes.write_bytes(b"")
            notes.chmod(0o666)
            begun = time.monotonic()
            ran = tests.run(test.executable, [test.name], 600, KAROO_FAULTS_MET=str(notes))
            seconds = time.monotonic() - begun
            if ran.failed is None:
                met = notes.read_bytes()
                known[test] = Known(seconds, frozenset(i for i, byte in enumerate(met) if byte))
                return
        failed[test] = f"{test}\n{ran.output}"

    def look_alone(task):
        if task[1].executable in alone:
            with lonely:
                look(task)
        else:
            look(task)

    # Those that wait for one another last.
    chosen = sorted(chosen, key=lambda test: test.executable in alone)
    worker_threads(jobs, list(enumerate(chosen)), look_alone)
    return known, failed
