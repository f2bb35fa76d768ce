"""Takes a copy that is built to a machine with more cores, which needs neither Rust nor DPDK."""

import os
import pickle
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

from .building import Built

RUN = """\
#!/bin/sh
# Unpacks the copy to where it was built, and plants its faults there. Arguments go to plant-faults.
set -e
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
tar -C / -xJf "$here/copy.tar.xz"
exec python3 "{root}/scripts/plant-faults" --packed "{notes}" "$@"
"""


def pack(copy: Built, root: Path, folder: Path):
    """Writes `folder`: an archive of the copy with its executables and libraries, and `plant`, which unpacks and runs it."""
    folder.mkdir(parents=True, exist_ok=True)
    executables = sorted({artifact["executable"] for artifact in copy.executables if artifact["executable"]})
    bundle, notes = copy.tree.parent / "bundle", copy.tree.parent / "hunt.pickle"
    subprocess.run([root / "scripts/bundle", bundle, "--of", *executables], check=True)
    drivers = ":".join(str(driver) for driver in sorted((bundle / "pmds").iterdir()))
    libraries = {"LD_LIBRARY_PATH": f"{bundle}/lib", "LD_PRELOAD": drivers}
    notes.write_bytes(pickle.dumps(replace(copy, environment=libraries)))
    with tarfile.open(folder / "copy.tar.xz", "w:xz", preset=6) as archive:
        for path in [notes, bundle / "lib", bundle / "pmds", copy.tree, root / "scripts"]:
            archive.add(path)
        for executable in executables:
            archive.add(bundle / "bin" / Path(executable).name, executable)
    plant = folder / "plant"
    plant.write_text(RUN.format(root=root, notes=notes))
    plant.chmod(0o755)


def unpack(notes: Path) -> Built:
    """The copy that [`pack`] packed, where it was unpacked."""
    copy = pickle.loads(notes.read_bytes())
    return replace(copy, environment=dict(os.environ) | copy.environment)
