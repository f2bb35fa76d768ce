//! `karoo tune` on a recorded EPYC server, and for real on this machine where it may.

mod journal;
mod machine;
mod pages;
mod prepare;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::{host, karoo};

/// Every file and link below a folder.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                all.insert(path, target.into_os_string().into_encoded_bytes());
            } else if kind.is_dir() {
                folders.push(path);
            } else {
                all.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    all
}

/// A recorded host, and a folder for its journal outside it.
struct Recorded {
    root: tempfile::TempDir,
    state: tempfile::TempDir,
}

impl Recorded {
    fn new(record: &str) -> Self {
        Self {
            root: host::lay_out(record),
            state: tempfile::tempdir().unwrap(),
        }
    }

    fn arguments<'a>(&'a self, command: &[&'a str]) -> Vec<&'a str> {
        let (root, state) = (self.root.path(), self.state.path());
        let at = [
            "--root",
            root.to_str().unwrap(),
            "--state",
            state.to_str().unwrap(),
        ];
        [&["tune"][..], command, &at].concat()
    }

    fn tune(&self, command: &[&str]) -> Output {
        karoo(self.arguments(command))
    }

    /// Runs a command that must end with `code`; what it printed.
    fn ended(&self, code: i32, command: &[&str]) -> String {
        let output = self.tune(command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn file(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join(path)).unwrap()
    }

    /// The status of each value of each entry.
    fn statuses(&self, profile: &str) -> BTreeMap<String, Vec<String>> {
        let output = self.tune(&["check", profile, "--json"]);
        let findings: Value = serde_json::from_slice(&output.stdout).unwrap();
        let status = |value: &Value| value["status"].as_str().unwrap().to_owned();
        let entry = |finding: &Value| {
            let values = finding["values"].as_array().unwrap();
            let id = finding["id"].as_str().unwrap().to_owned();
            (id, values.iter().map(status).collect())
        };
        findings["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(entry)
            .collect()
    }
}

#[test]
fn a_fresh_server_is_told_what_it_lacks() {
    let server = Recorded::new(&host::record("milan"));
    let before = contents(server.root.path());
    let found = server.statuses("appliance");
    let all = |id: &str, status: &str| {
        let values = &found[id];
        assert!(
            !values.is_empty() && values.iter().all(|s| s == status),
            "{id}: {values:?}"
        );
        values.len()
    };
    assert_eq!(all("governor", "miss"), 32);
    for id in [
        "realtime-share",
        "numa-balancing",
        "huge-pages-on-demand",
        "swap",
        "watchdog",
        "interrupt-balancer",
        "jumbo-frames",
        "multicast-loopback",
        "read-request",
        "gpu-persistence",
        "gpu-clocks",
        "locked-memory",
        "realtime-priority",
        "isolated-cpus",
        "no-ticks",
        "callbacks",
        "interrupts-at-boot",
        "iommu-pass-through",
        "huge-pages-at-boot",
        "sleep-states",
        "sleep-states-of-intel",
        "mitigations",
        "threads-of-a-core",
        "iommu",
    ] {
        all(id, "miss");
    }
    for id in [
        "huge-pages",
        "transparent-huge-pages",
        "page-merging",
        "nodes-per-socket",
        "separate-bridges",
        "x2apic",
    ] {
        all(id, "ok");
    }
    for id in ["data-fabric-states", "fabric-clock", "preferred-io"] {
        all(id, "listed");
    }
    // The NIC's two functions allow it, the GPU does not.
    assert_eq!(found["relaxed-ordering"], ["ok", "ok", "miss"]);
    // One port is as it should be, the other is not.
    assert_eq!(found["pause-received"], ["miss", "ok"]);
    assert_eq!(found["receive-ring"], ["miss", "ok"]);
    // One that nothing handles is left out.
    assert_eq!(found["interrupts"], ["miss", "ok", "miss", "miss", "miss"]);
    assert_eq!(server.tune(&["check", "appliance"]).status.code(), Some(1));
    let shown = server.ended(0, &["apply", "appliance", "--dry-run"]);
    assert!(
        shown.contains("isolcpus=managed_irq,domain,1-15,17-31 "),
        "{shown}"
    );
    assert_eq!(contents(server.root.path()), before, "nothing was changed");
}

#[test]
fn apply_makes_it_so_and_revert_leaves_every_byte_as_it_was() {
    let server = Recorded::new(&host::record("milan"));
    let before = contents(server.root.path());
    server.ended(0, &["apply", "appliance", "--yes"]);
    assert_eq!(server.file("proc/sys/kernel/numa_balancing"), "0\n");
    assert_eq!(
        server.file("sys/devices/system/cpu/cpu31/cpufreq/scaling_governor"),
        "performance\n"
    );
    assert_eq!(server.file("ethtool/ens3f0np0/rings/rx"), "8192\n");
    assert_eq!(
        server.file("nvidia-smi/0000:81:00.0/application-clocks"),
        "9501, 2100\n"
    );
    assert_eq!(server.file("proc/irq/121/smp_affinity_list"), "0,16\n");
    // Those of interfaces that are not up yet.
    assert_eq!(server.file("proc/irq/default_smp_affinity"), "00010001\n");
    let grub = server.file("etc/default/grub.d/karoo.cfg");
    let line = grub.lines().last().unwrap();
    assert!(
        line.starts_with("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX ") && line.ends_with('"'),
        "{grub}"
    );
    for argument in [
        "nohz_full=1-15,17-31",
        "irqaffinity=0,16",
        "nosoftlockup",
        "hugepagesz=2M hugepages=1024",
        "iommu=pt",
        "processor.max_cstate=1",
        "intel_idle.max_cstate=1",
        "mitigations=off",
    ] {
        assert!(line.contains(&format!(" {argument}")), "{grub}");
    }
    let limits = server.file("etc/security/limits.d/90-karoo.conf");
    assert!(
        limits.contains("* - memlock unlimited\n") && limits.contains("root - rtprio 95\n"),
        "{limits}"
    );
    // Relaxed ordering on, 4096 bytes, and no other bit (PCI Express, Device Control).
    let config = fs::read(
        server
            .root
            .path()
            .join("sys/devices/pci0000:80/0000:80:01.1/0000:81:00.0/config"),
    )
    .unwrap();
    assert_eq!(
        u16::from_le_bytes([config[0x80], config[0x81]]),
        0x2920 & !0x7000 | 0x5000 | 0x10
    );
    let found = server.statuses("appliance");
    for (id, values) in &found {
        let left_alone = ["interrupt-balancer", "threads-of-a-core", "iommu"].contains(&&id[..]);
        assert!(
            left_alone || !values.contains(&"miss".to_owned()),
            "{id}: {values:?}"
        );
    }
    assert_eq!(
        (&found["isolated-cpus"][..], &found["locked-memory"][..]),
        (&["pending".to_owned()][..], &["pending".to_owned()][..])
    );
    server.ended(0, &["apply", "appliance", "--yes"]);
    let said = server.ended(0, &["revert"]);
    assert!(said.contains("run update-grub, then reboot"), "{said}");
    assert_eq!(contents(server.root.path()), before);
    assert!(server.ended(0, &["revert"]).contains("nothing to revert"));
    server.ended(0, &["apply", "runtime", "--yes"]);
    let said = server.ended(0, &["revert"]);
    assert!(!said.contains("update-grub"), "{said}");
}

/// GRUB puts the arguments of /etc/default/grub's default entry behind all others.
#[test]
fn of_an_argument_given_twice_the_last_counts() {
    let record = host::record("milan");
    let status = |line: &str| {
        let server = Recorded::new(&record.replace("ro quiet", &format!("ro quiet {line}")));
        let said = server.ended(1, &["check", "appliance", "--explain"]);
        (server.statuses("appliance")["mitigations"].join(""), said)
    };
    assert_eq!(status("mitigations=auto mitigations=off").0, "ok");
    let (status, said) = status("mitigations=off mitigations=auto");
    assert_eq!(status, "miss");
    let remedy =
        "the kernel takes the last mitigations: take mitigations=auto off its command line";
    assert!(said.contains(remedy), "{said}");
}

/// The kernel refuses a list that differs from the one before it.
#[test]
fn of_lists_of_cpus_given_twice_the_first_counts() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("mine.toml");
    let id = |name: &str| name.replace('_', "-");
    let entry = |name: &str| {
        format!(
            "[[entry]]\nid = '{}'\nkind = 'kernel-argument'\nname = '{name}'\nvalue = '2-15'\nwhat = 'w'\n\
             why = 'y'\n",
            id(name)
        )
    };
    let names = ["isolcpus", "nohz_full"];
    let text = format!("purpose = 'a test'\n{}", names.map(entry).concat());
    fs::write(&profile, text).unwrap();
    let mine = profile.to_str().unwrap();
    let record = host::record("milan");
    let recorded = |lists: [&str; 2]| {
        let words = names.map(|name| lists.map(|list| format!("{name}={list}")).join(" "));
        let line = format!("ro quiet {}", words.join(" "));
        Recorded::new(&record.replace("ro quiet", &line))
    };
    let found = recorded(["2-15", "1-3"]).statuses(mine);
    assert_eq!(names.map(|name| &found[&id(name)][0][..]), ["ok", "ok"]);
    let server = recorded(["1-3", "2-15"]);
    let found = server.statuses(mine);
    assert_eq!(names.map(|name| &found[&id(name)][0][..]), ["miss", "miss"]);
    let said = server.ended(1, &["check", mine, "--explain"]);
    for name in names {
        let remedy =
            format!("the kernel takes the first {name}: take {name}=1-3 off its command line");
        assert!(said.contains(&remedy), "{said}");
    }
}

/// Each profile's arguments and limits stay when another one is applied.
#[test]
fn profiles_add_to_the_files_of_others() {
    let server = Recorded::new(&host::record("milan"));
    let before = contents(server.root.path());
    server.ended(0, &["apply", "appliance", "--yes"]);
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("mine.toml");
    let text = "purpose = 'a test'\n\
        [[entry]]\nid = 'x'\nkind = 'kernel-argument'\nname = 'audit'\nvalue = '0'\nwhat = 'w'\nwhy = 'y'\n\
        [[entry]]\nid = 'z'\nkind = 'limit'\nlimit = 'rtprio'\nwant = '>=99'\nwhat = 'w'\nwhy = 'y'\n";
    fs::write(&profile, text).unwrap();
    let mine = profile.to_str().unwrap();
    server.ended(0, &["apply", mine, "--yes"]);
    let grub = server.file("etc/default/grub.d/karoo.cfg");
    for argument in [" isolcpus=managed_irq,domain,1-15,17-31 ", " audit=0\""] {
        assert!(grub.contains(argument), "{grub}");
    }
    let limits = server.file("etc/security/limits.d/90-karoo.conf");
    for limit in ["* - memlock unlimited\n", "root - rtprio 99\n"] {
        assert!(limits.contains(limit), "{limits}");
    }
    assert!(!limits.contains("rtprio 95"), "{limits}");
    assert_eq!(server.statuses("appliance")["isolated-cpus"], ["pending"]);
    assert_eq!(server.statuses(mine)["x"], ["pending"]);
    server.ended(0, &["revert"]);
    assert_eq!(contents(server.root.path()), before);
}

#[test]
fn what_is_not_understood_is_left_alone() {
    let record = host::record("milan").replace("numa_balancing = 1", "numa_balancing = some words");
    let server = Recorded::new(&record);
    assert_eq!(server.statuses("runtime")["numa-balancing"], ["unknown"]);
    let said = server.ended(0, &["apply", "runtime", "--yes"]);
    assert!(said.contains("left alone: kernel.numa_balancing"), "{said}");
    assert_eq!(
        server.file("proc/sys/kernel/numa_balancing"),
        "some words\n"
    );
    // A journal that somebody edited.
    let journal = server.state.path().join("journal.jsonl");
    fs::write(&journal, "{\"entry\": \"x\"}\n").unwrap();
    let changed = contents(server.root.path());
    for command in [&["revert"][..], &["apply", "runtime", "--yes"]] {
        let output = server.tune(command);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("line 1"));
    }
    assert_eq!(contents(server.root.path()), changed);
}

/// At boot no link is up, so the interfaces of the kernel's do not show that they are fast; a NIC
/// that left it has a PCI address alone.
#[test]
fn interfaces_that_are_down_are_named() {
    let record: String = host::record("milan")
        .split_inclusive('\n')
        .filter(|line| !line.contains("/speed =") && !line.starts_with("sys/class/net/ens3f1np1"))
        .collect();
    let server = Recorded::new(&record);
    let scope = |options: &[&str]| {
        let shown = server.ended(0, &[&["apply", "runtime", "--dry-run"], options].concat());
        let first = shown.lines().next().unwrap_or_default();
        let (_, interfaces) = first.split_once("data interfaces ").unwrap();
        let requests = shown
            .lines()
            .filter(|line| line.contains("max read request"));
        (
            interfaces.split_once(';').unwrap().0.to_owned(),
            requests.count(),
        )
    };
    assert_eq!(scope(&[]), ("none".to_owned(), 1), "the GPU alone");
    let named = "ens3f0np0,0000:41:00.1";
    let both = ("ens3f0np0, 0000:41:00.1".to_owned(), 3);
    assert_eq!(scope(&["--interface", named]), both);
    let up = Recorded::new(&host::record("milan"));
    let shown = up.ended(0, &["apply", "runtime", "--dry-run", "--interface", "none"]);
    assert!(shown.contains("data interfaces none;"), "{shown}");
    assert!(!shown.contains("ens3f"), "{shown}");
}

#[test]
fn wrong_command_lines_are_refused() {
    let server = Recorded::new(&host::record("milan"));
    for (wrong, word) in [
        (&["check", "fast"][..], "runtime, appliance"),
        (&["check", "none.toml"], "none.toml"),
        (&["check", "--interface", "eth9"], "ens3f0np0"),
        (&["check", "--interface", "0000:41:00.7"], "ens3f0np0"),
        (&["check", "--housekeeping", "99"], "0-31"),
        (&["apply"], "--yes"),
    ] {
        let output = server.tune(wrong);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {stderr}");
        assert!(stderr.contains(word), "{stderr}");
    }
}
