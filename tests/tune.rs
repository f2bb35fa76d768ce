//! `karoo tune` on a recorded EPYC server, and for real on this machine where it may.

#[path = "support/host.rs"]
mod host;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::karoo;

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
        findings.as_array().unwrap().iter().map(entry).collect()
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
        "sleep-states",
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
    assert_eq!(found["interrupts"], ["ok", "miss", "miss", "miss"]);
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
        "iommu=pt",
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
    server.ended(0, &["revert"]);
    assert_eq!(contents(server.root.path()), before);
    assert!(server.ended(0, &["revert"]).contains("nothing to revert"));
}

/// However far an apply came, revert undoes it: the journal's growth is cut off, in the middle of a line too.
#[test]
fn an_apply_that_is_cut_off_is_reverted() {
    let server = Recorded::new(&host::record("milan"));
    let before = contents(server.root.path());
    let journal = server.state.path().join("journal.jsonl");
    for blocks in [1, 3, 7, 12] {
        let arguments = server.arguments(&["apply", "appliance", "--yes"]);
        // The system kills a process that writes more than so many blocks of 512 bytes to a file.
        let output = Command::new("sh")
            .args([
                "-c",
                &format!("ulimit -f {blocks}; exec \"$@\""),
                "sh",
                env!("CARGO_BIN_EXE_karoo"),
            ])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), None, "it is killed");
        let written = fs::read_to_string(&journal).unwrap();
        assert!(
            !written.is_empty() && !written.ends_with('\n'),
            "the last line is cut off"
        );
        assert_eq!(
            contents(server.root.path()) != before,
            written.contains('\n'),
            "{blocks} blocks"
        );
        server.ended(0, &["revert"]);
        assert_eq!(contents(server.root.path()), before, "{blocks} blocks");
    }
}

#[test]
fn an_apply_that_is_killed_is_reverted() {
    let server = Recorded::new(&host::record("milan"));
    let before = contents(server.root.path());
    let mut apply = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(server.arguments(&["apply", "appliance", "--yes"]))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(apply.stdout.take().unwrap());
    let done = |line: &std::io::Result<String>| line.as_ref().unwrap().starts_with("done:");
    said.lines().find(done).unwrap().unwrap();
    apply.kill().unwrap();
    apply.wait().unwrap();
    assert_ne!(contents(server.root.path()), before);
    server.ended(0, &["revert"]);
    assert_eq!(contents(server.root.path()), before);
}

#[test]
fn the_first_values_count_when_profiles_follow_one_another() {
    let server = Recorded::new(&host::record("milan"));
    let before = contents(server.root.path());
    let folder = tempfile::tempdir().unwrap();
    for want in ["77", "78"] {
        let profile = folder.path().join(format!("{want}.toml"));
        let text = format!(
            "purpose = 'a test'\n[[entry]]\nid = 'x'\nkind = 'sysctl'\nname = 'vm.stat_interval'\nwant = '{want}'\nwhat = 'w'\nwhy = 'y'\n"
        );
        fs::write(&profile, text).unwrap();
        server.ended(0, &["apply", profile.to_str().unwrap(), "--yes"]);
        assert_eq!(
            server.file("proc/sys/vm/stat_interval"),
            format!("{want}\n")
        );
    }
    server.ended(0, &["revert"]);
    assert_eq!(contents(server.root.path()), before);
}

/// Values of another boot are not put back; files are.
#[test]
fn what_a_reboot_has_undone_is_not_undone_again() {
    let record = host::record("milan");
    let server = Recorded::new(&record);
    server.ended(0, &["apply", "appliance", "--yes"]);
    let boot = server.root.path().join("proc/sys/kernel/random/boot_id");
    fs::write(boot, "another\n").unwrap();
    fs::write(server.root.path().join("proc/sys/vm/swappiness"), "11\n").unwrap();
    let said = server.ended(0, &["revert"]);
    assert!(said.contains("a reboot has undone it"), "{said}");
    assert_eq!(server.file("proc/sys/vm/swappiness"), "11\n");
    assert!(
        !server
            .root
            .path()
            .join("etc/default/grub.d/karoo.cfg")
            .exists()
    );
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

#[test]
fn wrong_command_lines_are_refused() {
    let server = Recorded::new(&host::record("milan"));
    for (wrong, word) in [
        (&["check", "fast"][..], "runtime, appliance"),
        (&["check", "none.toml"], "none.toml"),
        (&["check", "--interface", "eth9"], "ens3f0np0"),
        (&["check", "--housekeeping", "99"], "0-31"),
        (&["apply"], "--yes"),
    ] {
        let output = server.tune(wrong);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {stderr}");
        assert!(stderr.contains(word), "{stderr}");
    }
}

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
                println!("no network namespaces: ip {command}");
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
        println!("no kernel parameters may be changed here");
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
    // Interrupts may be refused where the kernel manages them.
    assert!(code == Some(0) || said.contains("REFUSED"), "{said}");
    check("ok", "interval");
    check("ok", "frames");
    check("ok", "queues");
    let changed = all();
    assert_eq!(changed.0[0], "3\n");
    assert_eq!(changed.0[1], format!("{more}\n"), "{said}");
    assert_eq!(changed.0[2], "9000\n");
    for (file, cpus) in changed.1 {
        let refused = said.contains("REFUSED") && said.contains(file.to_str().unwrap());
        assert!(
            cpus == "0\n" || refused || before.1.get(&file) == Some(&cpus),
            "{file:?} {cpus}"
        );
    }
    let (code, said) = tune(&["revert"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!((all(), queues()), (before, queues_before));
}
