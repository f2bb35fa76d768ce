//! `karoo plan` on recorded hosts: the choices are those that measurements recommend, and stay as
//! they are.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{data, host, karoo};

fn plan(record: &str, options: &[&str]) -> String {
    let root = host::lay_out(record);
    let root = root.path().to_str().unwrap();
    let output = karoo([&["plan", "--root", root][..], options].concat());
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn json(record: &str, options: &[&str]) -> Value {
    serde_json::from_str(&plan(record, &[options, &["--json"]].concat())).unwrap()
}

fn lcores(plan: &Value, engine: usize) -> Vec<u64> {
    let lcores = plan["engines"][engine]["lcores"].as_array().unwrap();
    lcores
        .iter()
        .map(|lcore| lcore["cpu"].as_u64().unwrap())
        .collect()
}

/// Of each CPU in `cpus`, what the host says.
fn of<'a>(plan: &'a Value, cpus: &[u64], what: &str) -> Vec<&'a Value> {
    let cpu = |cpu: &u64| &plan["machine"]["cpus"][cpu.to_string()][what];
    cpus.iter().map(cpu).collect()
}

fn rules(plan: &Value) -> Vec<&str> {
    let warnings = plan["warnings"].as_array().unwrap();
    warnings
        .iter()
        .map(|w| w["rule"].as_str().unwrap())
        .collect()
}

fn distinct(values: &[&Value]) -> usize {
    values
        .iter()
        .map(|value| value.to_string())
        .collect::<BTreeSet<_>>()
        .len()
}

/// One engine alone has a last-level cache for each of its threads (Merry 2023, section 5.4).
#[test]
fn an_engine_alone_on_milan_spreads_over_the_caches() {
    let plan = json(&host::record("milan"), &["--rx-lcores", "2"]);
    let cpus = lcores(&plan, 0);
    assert_eq!(cpus.len(), 4);
    assert_eq!(distinct(&of(&plan, &cpus, "l3")), 4, "{cpus:?}");
    assert_eq!(rules(&plan), ["mtu", "not-isolated"]);
}

/// Four engines have a quadrant each (Merry 2023, section 5.4).
#[test]
fn four_engines_on_milan_have_a_cache_each() {
    let plan = json(
        &host::record("milan"),
        &["--engines", "4", "--rx-lcores", "2"],
    );
    let mut all = BTreeSet::new();
    let mut caches = BTreeSet::new();
    for engine in 0..4 {
        let cpus = lcores(&plan, engine);
        let l3s = of(&plan, &cpus, "l3");
        assert_eq!(distinct(&l3s), 1, "engine {engine}: {cpus:?}");
        caches.insert(l3s[0].as_u64().unwrap());
        all.extend(cpus);
    }
    assert_eq!((caches.len(), all.len()), (4, 16));
    // Four cores are an engine's four lcores: control has the sibling of one that mostly waits.
    assert!(rules(&plan).contains(&"smt-siblings"));
    assert!(!rules(&plan).contains(&"too-few-cores"));
}

/// NIC and GPU in one quadrant: a tenth of the rate (Merry 2023, table 3).
#[test]
fn nic_and_gpu_in_one_quadrant_are_warned_of() {
    let record = host::record("milan");
    let moved = record.replace("pci0000:40/0000:40:01.1", "pci0000:80/0000:80:03.1");
    assert_ne!(record, moved);
    let plan = json(&moved, &[]);
    assert_eq!(rules(&plan)[..2], ["mtu", "shared-root"]);
    let text = plan["warnings"][1]["text"].as_str().unwrap();
    assert!(
        text.contains("pci0000:80") && text.contains("63.0 GB/s"),
        "{text}"
    );
}

/// Nodes per socket cost up to half of the rate (Merry 2023, table 1).
#[test]
fn a_socket_cut_into_nodes_is_warned_of() {
    let record = host::record("milan");
    let node = "sys/devices/system/node/node";
    let cut = record.replace(
        &format!("{node}0/cpulist = 0-31"),
        &format!("{node}0/cpulist = 0-7,16-23\n{node}1/cpulist = 8-15,24-31"),
    );
    assert_ne!(record, cut);
    let plan = json(&cut, &[]);
    assert!(rules(&plan).contains(&"nodes-per-socket"));
    assert_eq!(distinct(&of(&plan, &lcores(&plan, 0), "node")), 1);
}

#[test]
fn two_sockets_have_an_engine_each_beside_its_devices() {
    let options = ["--engines", "2", "--rx-lcores", "2"];
    let plan = json(&host::record("dual-epyc"), &options);
    for engine in 0..2 {
        let chosen = &plan["engines"][engine];
        let cpus = lcores(&plan, engine);
        assert!(
            of(&plan, &cpus, "node").iter().all(|node| **node == engine),
            "{cpus:?}"
        );
        assert_eq!(distinct(&of(&plan, &cpus, "l3")), 4);
        let index = chosen["gpu"]["index"].as_u64().unwrap() as usize;
        assert_eq!(plan["machine"]["gpus"][index]["pci"]["node"], engine);
        let nic = chosen["nics"][0].as_u64().unwrap() as usize;
        assert_eq!(plan["machine"]["nics"][nic]["pci"]["node"], engine);
        assert!(
            chosen["buffers"]
                .as_array()
                .unwrap()
                .iter()
                .all(|buffer| buffer["node"] == engine)
        );
    }
    assert_eq!(rules(&plan), ["mtu", "mtu", "not-isolated"]);
}

#[test]
fn devices_of_two_sockets_for_one_engine_are_warned_of() {
    let options = [
        "--recv-interface",
        "ens2f0np0",
        "--send-interface",
        "ens6f0np0",
    ];
    let plan = json(&host::record("dual-epyc"), &options);
    assert_eq!(plan["engines"][0]["node"], 0);
    assert!(rules(&plan).contains(&"remote-numa"));
    // CPUs of the other socket only.
    let plan = json(
        &host::record("dual-epyc"),
        &["--cpus", "24-47", "--recv-interface", "ens2f0np0"],
    );
    assert_eq!(plan["engines"][0]["node"], 1);
    assert!(rules(&plan).contains(&"remote-numa"));
}

#[test]
fn isolated_cpus_are_for_lcores_and_the_others_for_the_rest() {
    let record = host::record("milan");
    let isolated = record.replace("cpu/isolated = ", "cpu/isolated = 2-15,18-31");
    let plan = json(&isolated, &[]);
    assert!(lcores(&plan, 0).iter().all(|cpu| (2..16).contains(cpu)));
    assert_eq!(
        plan["engines"][0]["housekeeping"],
        serde_json::json!([0, 1, 16, 17])
    );
    assert_eq!(rules(&plan), ["mtu"]);
}

/// The network of a host whose plan is wanted need not be set up.
#[test]
fn an_interface_whose_packets_are_too_small_is_warned_of() {
    let record = host::record("milan");
    let warned = json(&record, &["--recv-interface", "ens3f0np0"]);
    let text = warned["warnings"][0]["text"].as_str().unwrap();
    for part in ["'ens3f0np0' takes IP packets of 1500 bytes", "mtu 9000"] {
        assert!(text.contains(part), "{text}");
    }
    let wide = record.replace("mtu = 1500", "mtu = 9000");
    assert_ne!(record, wide);
    assert_eq!(rules(&json(&wide, &[])), ["not-isolated"]);
    // What is received through another is not sent there.
    let sent = ["--recv-interface=ens3f0np0", "--send-interface=ens3f1np1"];
    let half = record.replacen("mtu = 1500", "mtu = 9000", 1);
    let plan = json(&half, &sent);
    let text = plan["warnings"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("'ens3f1np1'") && text.contains("--send-packet-payload"),
        "{text}"
    );
}

/// One rx lcore was seen to do at the rates of these telescopes (docs/performance.md), and `karoo
/// fgpu` starts one.
#[test]
fn an_engine_has_one_rx_lcore_unless_told() {
    let names = |options: &[&str]| -> Vec<String> {
        let plan = json(&host::record("milan"), options);
        let lcores = plan["engines"][0]["lcores"].as_array().unwrap();
        let name = |lcore: &Value| lcore["name"].as_str().unwrap().to_owned();
        lcores.iter().map(name).collect()
    };
    assert_eq!(names(&[]), ["rx0", "engine", "tx"]);
    let two = ["rx0", "rx1", "engine", "tx"];
    assert_eq!(names(&["--rx-lcores", "2"]), two);
}

/// Among choices that the topology leaves open, measurements decide; without them the lowest CPU is
/// taken.
#[test]
fn measured_distances_decide_what_topology_leaves_open() {
    let record = host::record("workstation");
    let without = json(&record, &[]);
    assert_eq!(lcores(&without, 0), [1, 2, 3]);
    let count = 16;
    // CPU 6 is near CPU 1, everything else is far.
    let latency = |a: usize, b: usize| match (a, b) {
        (a, b) if a == b => 0.0,
        (1, 6) | (6, 1) => 20.0,
        _ => 90.0,
    };
    let table = |value: &dyn Fn(usize, usize) -> f64| -> Vec<Vec<f64>> {
        (0..count)
            .map(|a| (0..count).map(|b| value(a, b)).collect())
            .collect()
    };
    let times = serde_json::json!({
        "model": without["machine"]["model"],
        "cpus": (0..count).collect::<Vec<_>>(),
        "latency_ns": table(&latency),
        "gigabytes_per_second": table(&|_, _| 10.0),
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cores.json");
    std::fs::write(&file, times.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let with = json(&record, &["--cores-file", file]);
    assert_eq!(with["measured"], true);
    assert_eq!(lcores(&with, 0)[..2], [1, 6]);
    // Of another kind of host.
    let other = json(&host::record("milan"), &["--cores-file", file]);
    assert_eq!(other["measured"], false);
}

#[test]
fn whole_plans_stay_as_they_are() {
    for (name, engines) in [
        ("milan", "1"),
        ("milan", "4"),
        ("dual-epyc", "2"),
        ("workstation", "1"),
        ("two-cores", "1"),
    ] {
        let got = plan(&host::record(name), &["--engines", engines]);
        let path = data(&format!("hosts/{name}-{engines}.plan"));
        if std::env::var_os("KAROO_TEST_ACCEPT").is_some() {
            std::fs::write(&path, &got).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            got, kept,
            "{name}: KAROO_TEST_ACCEPT=1 keeps the new plan, once it was looked at"
        );
    }
}

#[test]
fn the_picture_shows_every_lcore() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.svg");
    plan(
        &host::record("dual-epyc"),
        &["--engines", "2", "--picture", file.to_str().unwrap()],
    );
    let svg = std::fs::read_to_string(file).unwrap();
    for (class, count) in [("rx", 2), ("engine", 2), ("tx", 2)] {
        let legend = 1;
        assert_eq!(
            svg.matches(&format!("class=\"{class}\"")).count(),
            count + legend,
            "{class}"
        );
    }
    for cpu in 0..96 {
        assert_eq!(svg.matches(&format!("<title>CPU {cpu}:")).count(), 1);
    }
}

#[test]
fn what_is_no_host_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let output = karoo(["plan", "--root", root]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("sys/devices/system/cpu/online"));
    let output = karoo(["plan", "--cpus", "60000"]);
    assert_eq!(output.status.code(), Some(2));
}
