//! Engines to which nothing comes: they sleep, and lose nothing when something comes again.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use super::cable::User;
use super::chain::request;
use super::rig::{CHUNK, KATCP, Rig, SYNC_TIME, total};
use super::sample;

/// For so long the process is looked at.
const WINDOW: Duration = Duration::from_secs(2);
/// Time on CPUs that all threads of a sleeping engine may have had in it: 2 % of one CPU.
const MOST: Duration = WINDOW.checked_div(50).expect("a divisor");

/// Time on CPUs of the threads of a process so far, by their numbers and names.
fn run_times(process: u32) -> BTreeMap<String, Duration> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut times = BTreeMap::new();
    for task in tasks {
        let folder = task.unwrap().path();
        let read = |file: &str| fs::read_to_string(folder.join(file));
        // Some may end meanwhile.
        let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else {
            continue;
        };
        let id = folder.file_name().unwrap().to_str().unwrap();
        let run = stat.split(' ').next().unwrap().parse().unwrap();
        times.insert(
            format!("{} {id}", name.trim_end()),
            Duration::from_nanos(run),
        );
    }
    times
}

/// Waits until the process sleeps. What it does now and then, such as the doctor's look, passes.
fn sleeps(rig: &mut Rig) {
    let mut before = (Instant::now(), run_times(rig.id()));
    rig.wait(|rig| {
        if before.0.elapsed() < WINDOW {
            return false;
        }
        let after = run_times(rig.id());
        let of = after.iter().map(|(name, time)| {
            let earlier = before.1.get(name).copied().unwrap_or_default();
            (name, *time - earlier)
        });
        let of: Vec<_> = of.collect();
        let taken: Duration = of.iter().map(|(_, time)| *time).sum();
        println!("all had {taken:?} of {:?}: {of:?}", before.0.elapsed());
        // No less if the test itself came late.
        let asleep = taken <= MOST;
        before = (Instant::now(), after);
        asleep
    });
}

fn loses_nothing(name: &str, options: &[&str], lcores: usize) {
    let Some(mut rig) = Rig::live_as(User::Root, name, options) else {
        return;
    };
    // Before the first heap of all, whose time leaps.
    sleeps(&mut rig);
    let first = rig.samples.first();
    let middle = first + (rig.samples.end() - first) / 2;
    rig.send(0, middle);
    // Of three chunks the engine waits for more.
    let sent = |rig: &mut Rig| {
        rig.received
            .end()
            .is_some_and(|end| end + 4 * CHUNK > middle)
    };
    rig.wait(sent);
    sleeps(&mut rig);
    // What is no heap of a digitiser wakes no engine.
    rig.send_first(|bytes| bytes.truncate(100));
    let cause = [("cause", "payload-past-end")];
    rig.wait(|rig| sample(&rig.metrics(), "karoo_input_drops", &cause) == 1.0);
    // Gains that it has, and delays that it has.
    let ask = |line: &str| request(&rig.cable.engine, KATCP, line);
    assert!(ask("?gain w 0 0.05").starts_with("!gain ok"));
    let delays = ask(&format!("?delays w {SYNC_TIME} 0,0:0,0 0,0:0,0"));
    assert!(delays.starts_with("!delays ok"), "{delays}");
    sleeps(&mut rig);
    rig.send(middle, u64::MAX);
    rig.wait_for_all();
    let metrics = rig.metrics();
    for family in ["fgpu_input_missing_heaps", "karoo_port_rx_missed"] {
        assert_eq!(total(&metrics, family), 0.0, "{family}: {}", rig.log());
    }
    let slept = metrics["karoo_lcore_seconds"][1].as_array().unwrap();
    let slept = slept.iter().filter(|sample| {
        let seconds = sample[2].as_f64().unwrap();
        sample[1]["phase"] == "sleep" && seconds > WINDOW.as_secs_f64()
    });
    assert_eq!(slept.count(), lcores, "{metrics}");
    // It ends when it sleeps, too.
    sleeps(&mut rig);
    rig.end();
    rig.check_all();
    let log = rig.log();
    assert_eq!(log.matches("in effect request=").count(), 2, "{log}");
    assert!(!log.contains("lcore-without-cpu"), "{log}");
    assert!(!log.contains("watchdog"), "{log}");
}

#[test]
fn an_idle_engine_on_packet_sockets_sleeps_and_loses_nothing() {
    loses_nothing("idle", &["--send-rate-factor=0"], 3);
}

#[test]
fn an_idle_engine_on_udp_sockets_sleeps_and_loses_nothing() {
    let options = [
        "--recv-interface=udp:k0,udp:k0",
        "--recv-affinity=-1,-1",
        "--send-interface=udp:k0",
        "--send-rate-factor=0",
    ];
    loses_nothing("idle-udp", &options, 4);
}
