"""Network namespaces with cables between them, and programs in them."""

import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time

IFF_UP, IFF_LOOPBACK, IFF_RUNNING, IFF_MULTICAST, SIOCSIFFLAGS = 0x1, 0x8, 0x40, 0x1000, 0x8914
ENGINE, PEER = "10.77.0.1", "10.77.0.100"


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Cable:
    """A namespace with k0 for each engine, and one with k1 for what is at the other end of all of them."""

    def __init__(self, engines=1):
        name = f"karoo-peers-{os.getpid()}"
        self.engines = [f"{name}-{number}" for number in range(engines)]
        self.engine, self.peer = self.engines[0], f"{name}-peer"

    def __enter__(self):
        for name in (*self.engines, self.peer):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        # Without snooping, which would ask for a querier.
        ip("-n", self.peer, "link", "add", "k1", "type", "bridge", "mcast_snooping", "0")
        for number, name in enumerate(self.engines):
            ip("-n", name, "link", "add", "k0", "type", "veth", "peer", "name", f"p{number}", "netns", self.peer)
            ip("-n", self.peer, "link", "set", f"p{number}", "master", "k1", "mtu", "9000", "up")
            self.address(name, "k0", ENGINE.replace("77.0.1", f"77.0.{number + 1}"))
        self.address(self.peer, "k1", PEER)
        return self

    @staticmethod
    def address(namespace, device, address):
        ip("-n", namespace, "addr", "add", address + "/24", "dev", device)
        ip("-n", namespace, "link", "set", device, "mtu", "9000", "up")
        ip("-n", namespace, "route", "add", "224.0.0.0/4", "dev", device)

    def __exit__(self, *_):
        for name in (*self.engines, self.peer):
            subprocess.run(["ip", "netns", "delete", name], check=False)


class Loopback:
    """A namespace with nothing but lo, by which multicast goes; this machine's own, where there can be no other.

    Within the block this thread is in it, as are threads and programs that it starts: it needs no name.
    """

    name = None
    # Whether it is not this machine's.
    own = False

    def __enter__(self):
        self.before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        with contextlib.suppress(OSError):
            os.unshare(os.CLONE_NEWNET)
            self.own = True
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            # The structure ifreq: a name, and flags.
            flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING | IFF_MULTICAST
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags))
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            os.setns(self.before)
        os.close(self.before)


def enter(namespace):
    """This thread's sockets are of the namespace from now on."""
    with open(f"/run/netns/{namespace}") as file:
        os.setns(file.fileno(), os.CLONE_NEWNET)


def within(namespace):
    """What runs a command in a namespace: nothing in this one."""
    return ["ip", "netns", "exec", namespace] if namespace else []


def drained(namespace, seconds=20):
    """Waits until no datagram waits in a socket of the namespace."""
    command = [*within(namespace), "cat", "/proc/net/udp"]

    def waiting():
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
        # The fifth column has what waits to be sent and to be received, in hexadecimal.
        return sum(int(line.split()[4].split(":")[1], 16) for line in lines)

    return wait(lambda: waiting() == 0, seconds, f"sockets of {namespace or 'this namespace'} to be empty")


class Program:
    """A program in a namespace; it is ended with the block."""

    def __init__(self, namespace, log, *words, **options):
        self.log = log
        with open(log, "w") as file:
            words = [*within(namespace), *map(str, words)]
            options = {"start_new_session": True, **options}
            self.child = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.end()

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def end(self, number=signal.SIGINT, seconds=20):
        """Its exit code, once it has been told to end."""
        self.child.send_signal(number)
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            # With processes that it has started.
            os.killpg(self.child.pid, signal.SIGKILL)
            return self.child.wait()

    def until(self, words, seconds=60):
        """Waits until its log has the words."""
        wait(lambda: words in self.text() or self.child.poll() is not None, seconds, words)
        if words not in self.text():
            sys.exit(f"{self.log}: ended with {self.child.returncode}:\n{self.text()}")


def wait(happened, seconds, what):
    """Whether something has happened by then."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            print(f"waited {seconds} s for: {what}", file=sys.stderr)
            return False
        time.sleep(0.05)
    return True
