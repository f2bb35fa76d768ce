//! Two network namespaces with a cable between them.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use nix::sched::{CloneFlags, setns};

use crate::support::left_out;

/// Addresses of the interfaces k0 and k1 of the engine, and of those at the other end.
pub const ENGINE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 1, 1)];
pub const TEST: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 1, 2)];

/// Who runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Root,
    /// A user without any rights, and without a home.
    Nobody,
}

impl User {
    /// Options of setpriv for somebody without any rights.
    pub const NOBODY: [&str; 5] = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--bounding-set=-all",
        "--no-new-privs",
    ];

    /// A command line in a namespace, up to the program.
    pub fn within(self, namespace: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]);
        if self == Self::Nobody {
            command
                .arg("setpriv")
                .args(Self::NOBODY)
                .args(["env", "-u", "HOME"]);
        }
        command
    }
}

/// Cables of this process: tests side by side may choose one name.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// Two namespaces and the cable between them.
pub struct Cable {
    pub engine: String,
    pub test: String,
}

impl Cable {
    pub fn new(name: &str) -> Option<Self> {
        let (process, count) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let unique = |end: &str| format!("karoo-{name}-{end}-{process}-{count}");
        let cable = Self {
            engine: unique("engine"),
            test: unique("test"),
        };
        let (engine, test) = (&cable.engine, &cable.test);
        let commands = [
            format!("netns add {engine}"),
            format!("netns add {test}"),
            format!("-n {engine} link set lo up"),
            format!("-n {test} link set lo up"),
        ];
        let wire = |i: usize| {
            [
                format!("link add k{i} netns {engine} type veth peer name k{i} netns {test}"),
                format!("-n {engine} link set k{i} mtu 9000 up"),
                format!("-n {test} link set k{i} mtu 9000 up"),
                format!("-n {engine} address add {}/24 dev k{i}", ENGINE[i]),
                format!("-n {test} address add {}/24 dev k{i}", TEST[i]),
            ]
        };
        let commands = commands.into_iter().chain(wire(0)).chain(wire(1));
        for command in commands {
            let output = Command::new("ip").args(command.split(' ')).output();
            let failed = match output {
                Ok(output) if output.status.success() => continue,
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            left_out(&format!("no network namespaces: ip {command}: {failed}"));
            return None;
        }
        Some(cable)
    }

    /// Does something in a namespace; sockets made there stay there.
    pub fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(Path::new("/run/netns").join(namespace)).unwrap();
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(&file, CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for namespace in [&self.engine, &self.test] {
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .output();
        }
    }
}
