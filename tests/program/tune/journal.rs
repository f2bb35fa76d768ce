//! The journal of `karoo tune`: whatever ends `apply`, `revert` undoes what it did.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::{Recorded, contents};
use crate::support::host;

/// Another process may be allowed what one was refused; only the kernel's own interrupts stay as
/// they are.
#[test]
fn what_was_refused_once_is_tried_again() {
    let server = Recorded::new(&host::record("milan"));
    let line = |path: &str, more: &str| {
        let boot = server.file("proc/sys/kernel/random/boot_id");
        let boot = boot.trim();
        format!(
            r#"{{"entry":"e","target":{{"at":"value","path":"{path}"}},"old":"x","new":"y","boot":"{boot}","refused":true{more}}}"#
        )
    };
    let lines = [
        line("/proc/sys/vm/swappiness", ""),
        line("/proc/irq/120/smp_affinity_list", ""),
        line("/proc/irq/121/smp_affinity_list", r#","fixed":true"#),
    ];
    let journal = server.state.path().join("journal.jsonl");
    fs::write(&journal, lines.join("\n") + "\n").unwrap();
    let found = server.statuses("runtime");
    assert_eq!(found["swap"], ["miss"]);
    assert_eq!(found["interrupts"], ["miss", "ok", "miss", "fixed", "miss"]);
    server.ended(0, &["apply", "runtime", "--yes"]);
    assert_eq!(server.file("proc/sys/vm/swappiness"), "0\n");
}

/// Somebody else may have changed it since.
#[test]
fn what_was_refused_is_not_undone() {
    let server = Recorded::new(&host::record("milan"));
    let boot = server.file("proc/sys/kernel/random/boot_id");
    let boot = boot.trim();
    let line = |path: &str, refused: bool| {
        format!(
            r#"{{"entry":"e","target":{{"at":"value","path":"{path}"}},"old":"7","new":"0","boot":"{boot}","refused":{refused}}}"#
        )
    };
    let [swap, watchdog] = ["/proc/sys/vm/swappiness", "/proc/sys/kernel/nmi_watchdog"];
    let lines = [
        line(swap, false),
        line(swap, true),
        line(watchdog, false),
        line(watchdog, true),
        line(watchdog, false),
    ];
    let journal = server.state.path().join("journal.jsonl");
    fs::write(&journal, lines.join("\n") + "\n").unwrap();
    let before = server.file(&swap[1..]);
    server.ended(0, &["revert"]);
    assert_eq!(server.file(&swap[1..]), before);
    // The second time it was done.
    assert_eq!(server.file(&watchdog[1..]), "7\n");
}

/// However far an apply came, revert undoes it: the journal's growth is cut off, in the middle of a
/// line too.
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

/// Two entries may be about one value by two names, as the kernel's folders have many: only
/// backwards is the way back.
#[test]
fn the_last_change_is_undone_first() {
    let server = Recorded::new(&host::record("milan"));
    let class = server.root.path().join("sys/class/net");
    symlink("ens3f0np0", class.join("other")).unwrap();
    let before = contents(server.root.path());
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("names.toml");
    let entry = |id: &str, name: &str, want: u32| {
        format!(
            "[[entry]]\nid = '{id}'\nkind = 'file'\npath = '/sys/class/net/{name}/mtu'\nwant = '{want}'\nwhat = 'w'\nwhy = 'y'\n"
        )
    };
    let text = format!(
        "purpose = 'a test'\n{}{}",
        entry("one", "ens3f0np0", 9000),
        entry("two", "other", 8000)
    );
    fs::write(&profile, text).unwrap();
    server.ended(0, &["apply", profile.to_str().unwrap(), "--yes"]);
    assert_eq!(server.file("sys/class/net/ens3f0np0/mtu"), "8000\n");
    server.ended(0, &["revert"]);
    assert_eq!(contents(server.root.path()), before);
}

/// A disk that does not take the journal, by a library that stands before the system's.
#[test]
fn nothing_is_changed_before_the_journal_is_on_disk() {
    const LIBRARY: &str = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static int keep(long call, int fd) {
            char link[64], path[4096];
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            ssize_t length = readlink(link, path, sizeof path - 1);
            path[length < 0 ? 0 : length] = 0;
            if (strstr(path, "/journal.jsonl")) { errno = EIO; return -1; }
            return (int)syscall(call, fd);
        }
        int fsync(int fd) { return keep(SYS_fsync, fd); }
        int fdatasync(int fd) { return keep(SYS_fdatasync, fd); }
    "#;
    let server = Recorded::new(&host::record("milan"));
    let before = contents(server.root.path());
    let folder = tempfile::tempdir().unwrap();
    let [source, library] = ["disk.c", "disk.so"].map(|name| folder.path().join(name));
    fs::write(&source, LIBRARY).unwrap();
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    assert!(compiled.unwrap().success(), "scripts/bootstrap installs cc");
    let output = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(server.arguments(&["apply", "appliance", "--yes"]))
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("journal.jsonl") && said.contains("os error 5"),
        "{said}"
    );
    assert_eq!(contents(server.root.path()), before);
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
