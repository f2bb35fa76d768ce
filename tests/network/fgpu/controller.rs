//! An engine under the conditions of MeerKAT's controller: its command line, a control group with a
//! limit of memory, no rights but real-time priority.
//!
//! Needs root, for namespaces and control groups; where there are none, says so and passes.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::cable::{Cable, User};
use crate::support::{left_out, refused};

/// As the controller's generator writes it, with a wideband output of its L band.
const COMMAND: [&str; 16] = [
    "--recv-interface=k0",
    "--send-interface=k0",
    "--send-packet-payload=8192",
    "--adc-sample-rate=1712000000.0",
    "--dig-sample-bits=10",
    "--recv-packet-samples=4096",
    "--feng-id=3",
    "--array-size=64",
    "--sync-time=1763700000.0",
    "--katcp-port=7147",
    "--prometheus-port=7250",
    "--aiomonitor",
    "--aiomonitor-port=7251",
    "--aioconsole-port=7253",
    "--wideband=name=wide,channels=4096,taps=16,w_cutoff=1.0,jones_per_batch=1048576,\
     dst=239.10.0.0+63:7148,dither=uniform,window_function=hann",
    "239.102.0.64+7:7148,239.102.1.64+7:7148",
];
const NARROW: &str = "--narrowband=name=narrow,channels=32768,taps=16,jones_per_batch=1048576,\
                      dst=239.10.1.0+63:7148,decimation=8,centre_frequency=284000000.0,ddc_taps=96";
const MIB: u64 = 1 << 20;

/// A control group with a limit of memory; it goes with this.
struct Group(PathBuf);

impl Group {
    /// `None` where there are no control groups that may be changed.
    fn new(name: &str, limit: u64) -> Option<Self> {
        // Version 1, then version 2.
        let places = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        for (folder, file) in places {
            let group = Self(PathBuf::from(format!("{folder}/{name}")));
            // A folder of anything else has no such file.
            let file = fs::create_dir(&group.0)
                .and_then(|()| fs::File::options().write(true).open(group.0.join(file)));
            if file.is_ok_and(|mut file| file.write_all(limit.to_string().as_bytes()).is_ok()) {
                return Some(group);
            }
        }
        left_out("no control groups for memory");
        None
    }

    /// Runs a command of anybody's in it, in a network namespace, where it sees its group as a
    /// container does.
    fn run(&self, namespace: &str, words: &[&str]) -> Output {
        const WITHIN: &str = "echo $$ >\"$0/cgroup.procs\" && exec ip netns exec \"$@\"";
        // `ip netns exec` mounts /sys anew, without the groups.
        const VERSION_1: &str = "mount -t tmpfs groups /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory && \
                                 mount -t cgroup -o memory groups /sys/fs/cgroup/memory && exec \"$@\"";
        const VERSION_2: &str = "mount -t cgroup2 groups /sys/fs/cgroup && exec \"$@\"";
        let first = self.0.starts_with("/sys/fs/cgroup/memory");
        let mounts = if first { VERSION_1 } else { VERSION_2 };
        let mut command = Command::new("sh");
        command.args(["-c", WITHIN]).arg(&self.0).arg(namespace);
        command.args(["sh", "-c", mounts, "sh", "setpriv"]);
        command.args(User::NOBODY).args(words);
        command.env_remove("RUST_LOG").output().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Exit code, standard output and standard error of the plan of an engine with so much memory.
fn plan(cable: &Cable, mib: u64, options: &[&str]) -> Option<(i32, String, String)> {
    let group = Group::new(&cable.engine, mib * MIB)?;
    let before = [env!("CARGO_BIN_EXE_karoo"), "fgpu"];
    let words = [
        &before[..],
        &COMMAND,
        options,
        &["--print-plan", "--log=stderr"],
    ]
    .concat();
    let Output {
        status,
        stdout,
        stderr,
    } = group.run(&cable.engine, &words);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Some((status.code().unwrap(), text(stdout), text(stderr)))
}

/// Sum that the plan states of a kind of memory.
fn stated(plan: &str, place: &str) -> u64 {
    let line = plan
        .lines()
        .find_map(|line| line.trim().strip_prefix(place));
    let line = line.unwrap_or_else(|| panic!("{plan}"));
    line.trim_start_matches(':')
        .trim()
        .strip_suffix(" MiB")
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn what_the_controller_starts_fits_what_it_gives() {
    let Some(cable) = Cable::new("memory") else {
        return;
    };
    let Some((code, text, log)) = plan(&cable, 1700, &["--backend=cuda"]) else {
        return;
    };
    assert_eq!(code, 0, "{text}\n{log}");
    let (host, gpu) = (stated(&text, "host"), stated(&text, "GPU, at most"));
    assert!((1300..1700).contains(&host), "{text}");
    // Receive chunks may come to be in it.
    assert!((1600..2000).contains(&gpu), "{text}");
    let (_, text, _) = plan(&cable, 1700, &["--backend=cuda", "--memory=pinned"]).unwrap();
    assert!(
        (600..1600).contains(&stated(&text, "GPU, at most")),
        "{text}"
    );
    assert!(
        text.contains("receive chunks  --recv-chunk-samples 33554432"),
        "{text}"
    );
    assert!(
        text.contains("limit_in_bytes)") || text.contains("memory.max)"),
        "{text}"
    );
    assert!(!log.contains("lowered"), "{log}");

    // With a second output the defaults are lowered, and nothing that was given.
    let (code, text, log) = plan(&cable, 1600, &["--backend=cuda", NARROW]).unwrap();
    assert_eq!(code, 0, "{text}\n{log}");
    assert!(stated(&text, "host") <= 1600, "{text}");
    assert!(
        log.contains("lowered option=\"--recv-spare-chunks\""),
        "{log}"
    );
    let given = [
        "--backend=cuda",
        NARROW,
        "--recv-spare-chunks=3",
        "--send-chunk-jones=8388608",
    ];
    let (code, text, log) = plan(&cable, 1600, &given).unwrap();
    assert_eq!(code, 2, "{text}\n{log}");
    let error = log.lines().last().unwrap();
    for part in [
        "MiB are available (/sys/fs/cgroup",
        "--recv-spare-chunks (",
        "--send-chunk-jones (",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

/// A plan is wanted before the network is set up; an engine that is started is refused.
#[test]
fn a_plan_warns_of_an_mtu_that_an_engine_refuses() {
    let Some(cable) = Cable::new("narrow") else {
        return;
    };
    let narrowed = Command::new("ip")
        .args(["-n", &cable.engine, "link", "set", "k0", "mtu", "1400"])
        .status();
    assert!(narrowed.unwrap().success());
    let run = |options: &[&str]| {
        let mut command = User::Root.within(&cable.engine);
        command.args([env!("CARGO_BIN_EXE_karoo"), "fgpu", "--backend=cpu"]);
        let output = command
            .args(COMMAND)
            .args(options)
            .env_remove("RUST_LOG")
            .output();
        output.unwrap()
    };
    let needed = "interface 'k0' takes IP packets of 1400 bytes, but --send-packet-payload makes";
    let plan = run(&["--print-plan"]);
    let text = String::from_utf8(plan.stdout).unwrap();
    assert!(plan.status.success(), "{text}");
    assert!(text.contains(&format!("mtu: {needed}")), "{text}");
    assert!(text.contains("ip link set dev k0 mtu 9000"), "{text}");
    refused(
        &run(&["--log=stderr"]),
        2,
        "interface 'k0' takes IP packets of 1400 bytes",
    );
}

/// Nothing starts, and nobody is killed.
#[test]
fn an_engine_that_does_not_fit_is_refused() {
    let Some(cable) = Cable::new("short") else {
        return;
    };
    let Some((code, text, log)) = plan(&cable, 300, &["--backend=cpu"]) else {
        return;
    };
    assert_eq!(code, 2, "{text}\n{log}");
    let host = stated(&text, "host");
    let error = log.lines().last().unwrap();
    assert!(
        error.contains(&format!("the whole run {host} MiB")),
        "{error}\n{text}"
    );
    assert!(error.contains("lower --recv-chunk-samples ("), "{error}");
}
