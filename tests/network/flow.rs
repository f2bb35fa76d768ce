//! `karoo flow run` with DPDK ports on both ends of a cable, in a namespace of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use tempfile::tempdir;

use crate::support::left_out;

const PASS: &str = r#"
name = "pass"
node = [
    { path = "x", kind = "input", of = "i16" },
    { path = "twice", kind = "gain", from = ["x"], gain = 2 },
    { path = "y", kind = "output", from = ["twice"] },
]
"#;

fn ip(command: &str) -> bool {
    let status = Command::new("ip").args(command.split(' ')).status();
    status.is_ok_and(|status| status.success())
}

/// A namespace with a cable from k0 to k1.
struct Cable(String);

impl Cable {
    /// `None` where there are no namespaces.
    fn new() -> Option<Self> {
        let name = format!("karoo-flow-{}", std::process::id());
        if !ip(&format!("netns add {name}")) {
            left_out("no network namespaces");
            return None;
        }
        let cable = Self(name);
        let name = &cable.0;
        let made = ip(&format!("-n {name} link add k0 type veth peer name k1"))
            && ip(&format!("-n {name} addr add 10.9.0.1/24 dev k0"))
            && ip(&format!("-n {name} addr add 10.9.0.2/24 dev k1"))
            && ip(&format!("-n {name} link set k0 mtu 9000 up"))
            && ip(&format!("-n {name} link set k1 mtu 9000 up"));
        if !made {
            left_out("no network namespaces");
        }
        made.then_some(cable)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.0));
    }
}

#[test]
fn datagrams_carry_samples_from_port_to_port() {
    let Some(cable) = Cable::new() else {
        return;
    };
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("graph.toml"), PASS).unwrap();
    let samples: Vec<i16> = (0..20_000).map(|n| (n % 8000) as i16).collect();
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    fs::write(path("x"), &bytes).unwrap();
    let run = |input: &str, output: &str| {
        Command::new("ip")
            .args(["netns", "exec", &cable.0, env!("CARGO_BIN_EXE_karoo")])
            .args([
                "flow",
                "run",
                &path("graph.toml"),
                "--no-pin",
                "--input",
                input,
            ])
            .args(["--output", output])
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let to = path("y");
    let mut receiver = run("x=dpdk:k1:239.1.2.3:5000,idle=3", &format!("y={to}"));
    // It has its port from this line on.
    let mut log = BufReader::new(receiver.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("running") {
        let got = log.read_line(&mut said).unwrap();
        assert!(got > 0, "{said}");
    }
    let from = format!("x={}", path("x"));
    let sender = run(&from, "y=dpdk:k0:239.1.2.3:5000,size=1024")
        .wait_with_output()
        .unwrap();
    assert!(sender.status.success(), "{sender:?}");
    let received = receiver.wait_with_output().unwrap();
    assert!(received.status.success(), "{received:?}");
    // Both graphs double.
    let wanted: Vec<u8> = samples
        .iter()
        .flat_map(|sample| (sample * 4).to_le_bytes())
        .collect();
    let got = fs::read(to).unwrap();
    assert_eq!(got.len(), wanted.len());
    assert!(got == wanted);
}
