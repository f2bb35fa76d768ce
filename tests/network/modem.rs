//! `karoo modem tx` and `rx` on DPDK ports at both ends of a cable between two namespaces.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;
use tempfile::tempdir;

use crate::fgpu::cable::{Cable, User};

/// Starts `karoo modem` in a namespace.
fn modem(namespace: &str, args: &[&str]) -> Child {
    User::Root
        .within(namespace)
        .args([env!("CARGO_BIN_EXE_karoo"), "modem"])
        .args(args)
        .arg("--json")
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn json(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Sends a message through the cable; returns what each end says, and what came.
fn pass(cable: &Cable, message: &[u8], more: &[&str]) -> (Value, Value, Vec<u8>) {
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (from, to) = (path("message"), path("back"));
    fs::write(&from, message).unwrap();
    let input = "dpdk:k0:239.102.9.1:4991,idle=3";
    let mut receiver = modem(&cable.test, &["rx", "--input", input, "--output", &to]);
    let mut log = BufReader::new(receiver.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("receiving") {
        assert!(log.read_line(&mut said).unwrap() > 0, "{said}");
    }
    let output = "dpdk:k0:239.102.9.1:4991,size=8192";
    let mut args = vec!["tx", "--input", &from, "--output", output];
    args.extend(["--sample-rate", "2M"]);
    args.extend(more);
    let sent = json(modem(&cable.engine, &args));
    let got = json(receiver);
    (sent, got, fs::read(to).unwrap())
}

#[test]
fn frames_go_from_port_to_port_and_losses_cost_those_that_they_touch() {
    let Some(cable) = Cable::new("modem") else {
        return;
    };
    let message: Vec<u8> = (0..150_000u32)
        .map(|i| (i.wrapping_mul(i) >> 3) as u8)
        .collect();
    let (sent, got, back) = pass(&cable, &message, &[]);
    assert_eq!(sent["frames"], 50);
    assert_eq!(got["counts"]["delivered"], 50, "{got}");
    assert_eq!(got["packets"]["packets"], sent["packets"]["packets"]);
    assert_eq!(got["packets"]["gaps"], 0);
    assert_eq!(got["packets"]["port_missed"], 0);
    assert!(back == message);

    let (sent, got, back) = pass(&cable, &message, &["--lose", "0.01"]);
    let left_out = &sent["packets"]["left_out"];
    let touched = left_out["frames"].as_u64().unwrap();
    assert!((3..40).contains(&touched), "{sent}");
    assert_eq!(got["packets"]["lost_samples"], left_out["samples"]);
    let delivered = got["counts"]["delivered"].as_u64().unwrap();
    assert!((50 - touched..=52 - touched).contains(&delivered), "{got}");
    // The last frame has 60 bytes.
    let whole = 3060 * delivered as usize;
    assert!([whole, whole - 3000].contains(&back.len()), "{got}");
    let mut parts = message.chunks(3060);
    for part in back.chunks(3060) {
        assert!(parts.any(|sent| sent == part));
    }
}
