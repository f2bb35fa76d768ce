//! `karoo bench ports` over a cable in a namespace: its report adds up.
//!
//! Needs root; where there are no namespaces, says "no network namespaces" and passes.

use std::process::Command;

use serde_json::Value;

use crate::support::left_out;

struct Namespace(String);

impl Namespace {
    fn new() -> Option<Self> {
        let name = format!("karoo-bench-{}", std::process::id());
        let namespace = Self(name.clone());
        let commands = [
            format!("netns add {name}"),
            format!("link add k0 netns {name} type veth peer name k1 netns {name}"),
            format!("-n {name} link set k0 mtu 9000 up"),
            format!("-n {name} link set k1 mtu 9000 up"),
            format!("-n {name} address add 10.88.2.1/24 dev k0"),
            format!("-n {name} address add 10.88.3.1/24 dev k1"),
        ];
        for command in commands {
            let output = Command::new("ip").args(command.split(' ')).output();
            if !output.is_ok_and(|output| output.status.success()) {
                left_out(&format!("no network namespaces: ip {command}"));
                return None;
            }
        }
        Some(namespace)
    }

    fn bench(&self, options: &[&str]) -> (Option<i32>, String, String) {
        let output = Command::new("ip")
            .args(["netns", "exec", &self.0, env!("CARGO_BIN_EXE_karoo")])
            .args(["bench", "ports", "--json", "--seconds=0.2"])
            .args(options)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.0])
            .output();
    }
}

#[test]
fn trials_add_up() {
    let Some(namespace) = Namespace::new() else {
        return;
    };
    let wires = ["--send-interface=k0", "--recv-interface=10.88.3.1"];
    for search in ["noisy", "rfc2544"] {
        let search = format!("--search={search}");
        let options = [
            &search[..],
            "--rate=0.05",
            "--lowest=0.01",
            "--step=0.3",
            "--repeats=2",
        ];
        let (_, report, log) = namespace.bench(&[&wires[..], &options].concat());
        assert!(report.starts_with('{'), "{log}");
        crate::support::documents::check("bench-ports", &report);
        let report: Value = serde_json::from_str(&report).unwrap_or_else(|_| panic!("{log}"));
        let trials = report["trials"].as_array().unwrap();
        assert!(!trials.is_empty());
        for trial in trials {
            let count = |name: &str| trial[name].as_u64().unwrap();
            let bytes = trial["rate"].as_f64().unwrap() * 1e9 / 8.0 * 0.2;
            assert_eq!(count("sent"), (bytes / 5192.0).ceil() as u64, "{trial}");
            assert!(count("received") <= count("sent"), "{trial}");
            assert!(
                count("received") == 0 || count("burst_bytes") >= 5192,
                "{trial}"
            );
        }
        let arrived = |trial: &Value| trial["received"].as_u64() > Some(0);
        assert!(trials.iter().any(arrived), "{report}");
        let tried = report["found"]["tried"].as_array().unwrap();
        let tallied: u64 = tried.iter().map(|t| t["trials"].as_u64().unwrap()).sum();
        assert_eq!(tallied, trials.len() as u64);
    }
    let refused = [&wires[..1], &["--recv-interface=k7"]].concat();
    let (code, _, log) = namespace.bench(&refused);
    assert!(code == Some(2) && log.contains("'k7'"), "{log}");
}
