"""A container of an OCI image, run by runc with what MeerKAT's controller asks docker for."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import resource
import subprocess
import tarfile

# What docker hides and forbids to write of /proc.
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/scsi", "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
MIB = 1 << 20
# Kernels that share real-time priority out among groups give none of it to new ones.
REAL_TIME = {"realtimeRuntime": 100000} if os.path.exists("/sys/fs/cgroup/cpu/cpu.rt_runtime_us") else {}


def unpack(archive, root):
    """Checks an image's archive against its own digests, unpacks its layers; returns its configuration."""
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}

    def blob(descriptor):
        kind, digest = descriptor["digest"].split(":")
        content = files[f"blobs/{kind}/{digest}"]
        assert hashlib.new(kind, content).hexdigest() == digest and len(content) == descriptor["size"]
        return content

    assert json.loads(files["oci-layout"])["imageLayoutVersion"] == "1.0.0"
    (manifest,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(manifest))
    config = json.loads(blob(manifest["config"]))
    assert len(config["rootfs"]["diff_ids"]) == len(manifest["layers"])
    for layer, wanted in zip(manifest["layers"], config["rootfs"]["diff_ids"]):
        plain = gzip.decompress(blob(layer))
        assert "sha256:" + hashlib.sha256(plain).hexdigest() == wanted
        with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
            tar.extractall(root, filter="fully_trusted")
    return config


def mount(destination, kind, *options, source=None):
    return {"destination": destination, "type": kind, "source": source or kind, "options": list(options)}


class Container:
    """A container that runs one command; it goes with the block."""

    def __init__(self, name, folder, root, image, namespace, command, environment, capabilities, cpus, memory, ulimits):
        self.name, self.folder = name, pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        own = [f"{key}={value}" for key, value in environment.items()]
        granted = ["CAP_" + capability for capability in capabilities]
        # Limits are raised as far as this process may.
        rlimits = []
        for limit in ("MEMLOCK",) if "memlock=-1" in ulimits else ():
            _, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{limit}"))
            rlimits.append({"type": f"RLIMIT_{limit}", "hard": hard % 2**64, "soft": hard % 2**64})
        config = {
            "ociVersion": "1.0.2",
            "process": {
                "args": command,
                "env": [*image["config"]["Env"], *own],
                "cwd": "/",
                "user": {"uid": 0, "gid": 0},
                "capabilities": {kind: granted for kind in ("bounding", "effective", "permitted")},
                "rlimits": rlimits,
            },
            "root": {"path": str(root), "readonly": True},
            "hostname": "agent",
            "mounts": [
                mount("/proc", "proc"),
                mount("/dev", "tmpfs", "nosuid", "mode=755", "size=65536k"),
                mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666"),
                mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "size=65536k", source="shm"),
                mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
                mount("/sys/fs/cgroup", "cgroup", "nosuid", "noexec", "nodev", "ro"),
            ],
            "linux": {
                "cgroupsPath": f"/{name}",
                "namespaces": [
                    {"type": "pid"},
                    {"type": "ipc"},
                    {"type": "uts"},
                    {"type": "mount"},
                    {"type": "network", "path": f"/run/netns/{namespace}"},
                ],
                "resources": {
                    "devices": [{"allow": False, "access": "rwm"}],
                    "memory": {"limit": memory * MIB, "swap": memory * MIB},
                    "cpu": {"cpus": cpus, **REAL_TIME},
                },
                "maskedPaths": MASKED,
                "readonlyPaths": READ_ONLY,
            },
        }
        (self.folder / "config.json").write_text(json.dumps(config, indent=1))
        self.log = self.folder / "log"

    def __enter__(self):
        with open(self.log, "w") as log:
            command = ["runc", "run", "--bundle", self.folder, self.name]
            self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        subprocess.run(["runc", "delete", "--force", self.name], stderr=subprocess.DEVNULL)
        self.child.wait()

    def text(self):
        return self.log.read_text(errors="replace")

    def running(self):
        return self.child.poll() is None

    def pid(self):
        """Of the first process in it, as the host counts."""
        state = subprocess.run(["runc", "state", self.name], capture_output=True, text=True)
        return json.loads(state.stdout)["pid"] if state.returncode == 0 else None

    def end(self, seconds=20):
        """Its exit code, once told to end as docker does it; `None` if it does not."""
        subprocess.run(["runc", "kill", self.name, "TERM"], check=True)
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def most_memory(self):
        """Bytes that it has taken at most, and how often it has met its limit; `None` where nobody counts."""
        places = [
            (f"/sys/fs/cgroup/memory/{self.name}", "memory.max_usage_in_bytes", "memory.failcnt"),
            (f"/sys/fs/cgroup/{self.name}", "memory.peak", "memory.events"),
        ]
        for folder, most, met in places:
            if os.path.exists(f"{folder}/{most}"):
                words = pathlib.Path(folder, met).read_text().split()
                met = int(words[words.index("max") + 1]) if "max" in words else int(words[0])
                return int(pathlib.Path(folder, most).read_text()), met
        return None
