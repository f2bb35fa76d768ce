//! `karoo bench engine` as a command: its report adds up, and what it cannot run is refused.

use std::fs::File;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::left_out;

#[test]
fn the_bench_accounts_for_every_packet() {
    let options = [
        "bench",
        "engine",
        "--backend",
        "cpu",
        "--oversubscribe",
        "--json",
        "--engines",
        "2",
        "--rate",
        "0.002",
        "--seconds",
        "0.5",
        "--rx-queues",
        "3",
        "--tx-queues",
        "2",
        "--channels",
        "256",
        "--jones-per-batch",
        "16384",
        "--recv-chunk-samples",
        "65536",
        "--max-delay-diff",
        "4096",
    ];
    let report = crate::support::karoo_ok(options);
    crate::support::documents::check("bench-engine", &report);
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    for engine in report["total"].as_array().unwrap() {
        let drops: u64 = engine["drops"]
            .as_object()
            .unwrap()
            .values()
            .map(number)
            .sum();
        let lost = number(&engine["ring_full"]) + number(&engine["no_buffer"]) + drops;
        assert_eq!(number(&engine["offered"]), number(&engine["placed"]) + lost);
        assert_eq!(engine["heaps_sent"], engine["heaps_received"]);
        assert!(number(&engine["heaps_sent"]) > 0);
    }
    let checked = &report["checked"];
    assert!(
        number(&checked["heaps"]) >= 2 && number(&checked["worst"]) <= 1,
        "{checked}"
    );
    assert!(
        number(&checked["differing"]) * 1000 <= number(&checked["bytes"]),
        "{checked}"
    );
    assert_eq!(report["rx"].as_array().unwrap().len(), 6);
}

#[test]
fn the_bench_runs_rounds_with_and_without_somebody_who_looks() {
    let options = [
        "bench",
        "engine",
        "--backend=cpu",
        "--oversubscribe",
        "--json",
        "--engines=2",
        "--rate=0.002",
        "--seconds=0.5",
        "--channels=256",
        "--jones-per-batch=16384",
        "--recv-chunk-samples=65536",
        "--max-delay-diff=4096",
        "--viewers=3",
        "--scrapes=20",
        "--rounds=2",
        "--watched-share=0.5",
    ];
    let report: serde_json::Value =
        serde_json::from_str(&crate::support::karoo_ok(options)).unwrap();
    let watched = &report["watched"];
    let rounds = watched["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    for round in rounds {
        for side in ["without", "with"] {
            assert_eq!(round[side]["asked"].as_f64(), Some(0.001));
            assert_eq!(round[side]["engines"].as_array().unwrap().len(), 2);
        }
    }
    // However many an engine sends on a busy machine, all of its rounds count.
    let mut sent = 0;
    for (engine, latency) in watched["latency"].as_array().unwrap().iter().enumerate() {
        for side in ["without", "with"] {
            let heaps = |latency: &serde_json::Value| latency[side]["heaps"].as_u64().unwrap();
            let of_rounds = rounds.iter().map(|round| heaps(&round["latency"][engine]));
            assert_eq!(heaps(latency), of_rounds.sum::<u64>(), "{watched}");
            let received = |round: &serde_json::Value| {
                let engine = &round[side]["engines"][engine];
                engine["heaps_received"].as_u64().unwrap()
            };
            assert_eq!(heaps(latency), rounds.iter().map(received).sum::<u64>());
            sent += heaps(latency);
        }
    }
    assert!(sent > 0, "{watched}");
    // Each page of each round has a document at least.
    let looks = &watched["looks"];
    assert!(looks["documents"].as_u64().unwrap() >= 2 * 2 * 3, "{looks}");
    assert!(looks["scrapes"].as_u64().unwrap() >= 2 * 2, "{looks}");
    assert_eq!(looks["failed"].as_u64(), Some(0), "{looks}");
}

#[test]
fn the_bench_refuses_what_it_cannot_run() {
    for (options, words) in [
        (
            &["--rx-queues", "300"][..],
            "--rx-queues 300: must be 1 to 64 here",
        ),
        (&["--cpus", "0", "--backend", "cpu"], "--oversubscribe"),
        (&["--rate", "0"], "--rate 0: must be from 1e-6 to 1000000"),
        (&["--tx-queues", "9"], "--tx-queues 9"),
        (&["--viewers", "65"], "--viewers 65: must be 1 to 64 here"),
        (&["--scrapes=-1"], "--scrapes -1: must be from 1e-6"),
        (&["--scrapes=1e-300"], "--scrapes 1e-300: must be from 1e-6"),
        (&["--trials=0"], "--trials 0: must be 1 to"),
        (
            &["--recv-chunk-samples", "5000"],
            "--recv-chunk-samples 5000",
        ),
    ] {
        let output = crate::support::karoo([&["bench", "engine"], options].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
}

/// Without huge pages.
#[test]
fn a_bench_that_does_not_fit_memory_names_the_way_out() {
    let rings = ["--engines=64", "--rx-queues=64", "--rx-descriptors=65535"];
    let small = [
        "--channels=64",
        "--taps=4",
        "--jones-per-batch=4096",
        "--recv-chunk-samples=65536",
        "--max-delay-diff=1024",
    ];
    let options = [&rings[..], &small, &["--backend=cpu", "--oversubscribe"]].concat();
    let output = crate::support::karoo([&["bench", "engine"], &options[..]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for words in [
        "--rx-descriptors 65535: packet buffers of all engines would take",
        "MiB are available",
        "fewer --engines",
        "HUGE_PAGES_2M=",
        "| sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
    ] {
        assert!(stderr.contains(words), "no {words:?} in {stderr}");
    }
}

/// Whether a process waits for a lock on a file.
fn waits_for_a_lock(pid: u32) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's locks");
    let pid = pid.to_string();
    locks
        .lines()
        .any(|line| line.contains("-> FLOCK") && line.split_whitespace().any(|word| word == pid))
}

#[test]
fn programs_take_huge_pages_one_after_another() {
    let Ok(folder) = File::open("/sys/kernel/mm/hugepages") else {
        left_out("no huge pages");
        return;
    };
    // As a program has it between seeing free pages and taking them.
    folder.lock().expect("a lock");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args([
            "bench",
            "engine",
            "--backend=cpu",
            "--oversubscribe",
            "--json",
        ])
        .args(["--rate=0.002", "--seconds=0.2", "--channels=256"])
        .args(["--jones-per-batch=16384", "--recv-chunk-samples=65536"])
        .args(["--max-delay-diff=4096"])
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    while !waits_for_a_lock(bench.id()) {
        let ended = bench.try_wait().expect("a child");
        assert!(ended.is_none(), "it did not wait: {ended:?}");
        thread::sleep(Duration::from_millis(5));
    }
    drop(folder);
    assert!(bench.wait().expect("a child").success());
}
