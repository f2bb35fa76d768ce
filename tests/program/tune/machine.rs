//! `karoo tune` for real, on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::left_out;

/// A namespace of this machine's network, with a cable that has only one end in use.
struct Namespace(String);

impl Namespace {
    fn new() -> Option<Self> {
        let namespace = Self(format!("karoo-tune-{}", std::process::id()));
        let name = &namespace.0;
        for command in [
            format!("netns add {name}"),
            format!(
                "link add k0 netns {name} numrxqueues 2 numtxqueues 2 type veth peer name k1 netns {name}"
            ),
        ] {
            let output = Command::new("ip").args(command.split(' ')).output();
            if !output.is_ok_and(|output| output.status.success()) {
                left_out(&format!("no network namespaces: ip {command}"));
                return None;
            }
        }
        Some(namespace)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.0, program])
            .args(arguments);
        command.output().unwrap()
    }

    fn read(&self, path: &str) -> String {
        String::from_utf8(self.run("cat", &[path]).stdout).unwrap()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.0])
            .output();
    }
}

/// Puts things back, whatever becomes of the test.
struct Revert<'a>(&'a Namespace, &'a str);

impl Drop for Revert<'_> {
    fn drop(&mut self) {
        self.0.run(
            env!("CARGO_BIN_EXE_karoo"),
            &["tune", "revert", "--state", self.1],
        );
    }
}

#[test]
fn this_machine_is_changed_and_changed_back() {
    let Some(namespace) = Namespace::new() else {
        return;
    };
    if fs::OpenOptions::new()
        .write(true)
        .open("/proc/sys/vm/stat_interval")
        .is_err()
    {
        left_out("no kernel parameters may be changed here");
        return;
    }
    let pages: u64 = fs::read_to_string("/proc/sys/vm/nr_hugepages")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let more = pages + 2;
    let folder = tempfile::tempdir().unwrap();
    let (profile, state) = (folder.path().join("test.toml"), folder.path().join("state"));
    let entry = |id: &str, rest: &str| {
        format!("[[entry]]\nid = '{id}'\nwhat = 'something'\nwhy = 'for a test'\n{rest}\n")
    };
    let text = [
        "purpose = 'a test'\n".to_owned(),
        entry(
            "interval",
            "kind = 'sysctl'\nname = 'vm.stat_interval'\nwant = '3'",
        ),
        entry(
            "pages",
            &format!("kind = 'sysctl'\nname = 'vm.nr_hugepages'\nwant = '>={more}'"),
        ),
        entry(
            "frames",
            "kind = 'file'\npath = '/sys/class/net/{nic}/mtu'\nwant = '>=9000'",
        ),
        entry(
            "queues",
            "kind = 'ethtool'\ngroup = 'channels'\nname = 'rx'\nwant = '1'",
        ),
        entry(
            "pause",
            "kind = 'ethtool'\ngroup = 'pause'\nname = 'rx'\nwant = 'off'",
        ),
        entry(
            "governor",
            "kind = 'file'\npath = '/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor'\nwant = 'performance'",
        ),
        entry("interrupts", "kind = 'irq-affinity'"),
        entry(
            "nonsense",
            "kind = 'sysctl'\nname = 'kernel.no_such_thing'\nwant = '1'",
        ),
    ];
    fs::write(&profile, text.concat()).unwrap();
    let (profile, state) = (profile.to_str().unwrap(), state.to_str().unwrap());

    let interrupts = || -> BTreeMap<PathBuf, String> {
        let folders = fs::read_dir("/proc/irq")
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let files = folders.map(|folder| folder.join("smp_affinity_list"));
        files
            .filter_map(|file| Some((file.clone(), fs::read_to_string(file).ok()?)))
            .collect()
    };
    let all = || {
        let paths = [
            "/proc/sys/vm/stat_interval",
            "/proc/sys/vm/nr_hugepages",
            "/sys/class/net/k0/mtu",
        ];
        (paths.map(|path| namespace.read(path)), interrupts())
    };
    let tune = |command: &[&str]| {
        let output = namespace.run(
            env!("CARGO_BIN_EXE_karoo"),
            &[&["tune"], command, &["--state", state]].concat(),
        );
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), said)
    };
    let queues = || namespace.run("ls", &["/sys/class/net/k0/queues"]).stdout;
    let about = [profile, "--interface", "k0", "--housekeeping", "0"];
    let (before, queues_before) = (all(), queues());
    let check = |status: &str, id: &str| {
        let (_, said) = tune(&[&["check"], &about[..]].concat());
        let line = said
            .lines()
            .find(|line| line.split_whitespace().nth(1) == Some(id));
        assert!(line.unwrap().starts_with(status), "{said}");
    };
    check("MISS", "interval");
    check("MISS", "frames");
    check("absent", "nonsense");
    check("absent", "pause");
    if !Path::new("/sys/devices/system/cpu/cpu0/cpufreq").exists() {
        check("absent", "governor");
    }

    let _undo = Revert(&namespace, state);
    let (code, said) = tune(&[&["apply", "--yes"], &about[..]].concat());
    // Interrupts stay where the kernel manages them, and may be refused by a sandbox.
    assert!(code == Some(0) || said.contains("REFUSED"), "{said}");
    check("ok", "interval");
    check("ok", "frames");
    check("ok", "queues");
    let changed = all();
    assert_eq!(changed.0[0], "3\n");
    assert_eq!(changed.0[1], format!("{more}\n"), "{said}");
    assert_eq!(changed.0[2], "9000\n");
    for (file, cpus) in changed.1 {
        let stays = |line: &str| line.starts_with("REFUSED") || line.starts_with("fixed");
        let named = |line: &str| line.contains(file.to_str().unwrap());
        let stays = said.lines().any(|line| stays(line) && named(line));
        assert!(cpus == "0\n" || stays, "{file:?} {cpus}");
    }
    let (code, said) = tune(&["revert"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!((all(), queues()), (before, queues_before));
}
