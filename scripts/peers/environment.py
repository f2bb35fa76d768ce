"""What the scripts that run real programs beside Karoo need: their sources, and a Python that can run them."""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# A file of each one's sources.
SOURCES = {
    "KAROO_KATGPUCBF": "src/katgpucbf/dsim/main.py",
    "KAROO_KATSDPCONTROLLER": "src/katsdpcontroller/generator.py",
}


def not_run(why):
    """Ends the script: nothing failed, and nothing was held."""
    print(f"not run: {why}", file=sys.stderr)
    sys.exit(2)


def enter(*variables):
    """Runs the script again under that Python, unless it is the one. Ends where anything is missing."""
    paths = []
    for variable in variables:
        folder = os.environ.get(variable)
        if not folder or not pathlib.Path(folder, SOURCES[variable]).exists():
            not_run(f"{variable} names no folder with {SOURCES[variable]}")
        paths.append(str(pathlib.Path(folder, "src").resolve()))
    if os.geteuid() != 0:
        not_run("network namespaces need root")
    if os.environ.get("KAROO_PEERS_ENTERED"):
        return
    # Before the minutes that an environment takes.
    program()
    environment = dict(os.environ, KAROO_PEERS_ENTERED="1")
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "scripts/peers"), *paths])
    python = venv() / "bin/python"
    os.execve(python, [str(python), *sys.argv], environment)


def venv():
    """A virtual environment with what the peers import, made anew when the list changes."""
    folder, wanted = ROOT / "target/peers-venv", ROOT / "scripts/peers/requirements.txt"
    installed = folder / "installed.txt"
    if installed.exists() and installed.read_bytes() == wanted.read_bytes():
        return folder
    names = [os.environ.get("KAROO_PEERS_PYTHON"), "python3.13", "python3.12", "python3"]
    for name in filter(None, names):
        path = shutil.which(name)
        recent = "import sys; sys.exit(sys.version_info < (3, 12))"
        if path and subprocess.run([path, "-c", recent], stderr=subprocess.DEVNULL).returncode == 0:
            break
    else:
        not_run("katgpucbf needs Python 3.12 or newer, which KAROO_PEERS_PYTHON may name")
    print(f"installing what {wanted.relative_to(ROOT)} names into {folder.relative_to(ROOT)}, once", file=sys.stderr)
    subprocess.run([path, "-m", "venv", "--clear", folder], check=True)
    # pymesos asks for a parser that has no wheel for such a Python.
    pip = [folder / "bin/pip", "install", "-q"]
    subprocess.run([*pip, "-r", wanted], check=True)
    subprocess.run([*pip, "--no-deps", "pymesos==0.3.15"], check=True)
    shutil.copy(wanted, installed)
    return folder


def program():
    """Karoo's program: the one that KAROO names, or the newest that was built here."""
    if "KAROO" in os.environ:
        named = pathlib.Path(os.environ["KAROO"]).resolve()
        return named if named.is_file() else not_run(f"KAROO names {named}, which is no program")
    built = [ROOT / "target" / kind / "karoo" for kind in ("release", "debug")]
    built = [path for path in built if path.exists()]
    if not built:
        not_run("no program is built; KAROO may name one")
    return max(built, key=lambda path: path.stat().st_mtime)
