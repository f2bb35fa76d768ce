"""Network namespaces with cables between them, and programs in them."""

import os
import signal
import subprocess
import sys
import time

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


def enter(namespace):
    """This thread's sockets are of the namespace from now on."""
    with open(f"/run/netns/{namespace}") as file:
        os.setns(file.fileno(), os.CLONE_NEWNET)


class Program:
    """A program in a namespace; it is ended with the block."""

    def __init__(self, namespace, log, *words, **options):
        self.log = log
        with open(log, "w") as file:
            words = ["ip", "netns", "exec", namespace, *map(str, words)]
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
            self.child.kill()
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
