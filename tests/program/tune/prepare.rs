//! What `karoo-host.service` asks `karoo tune` for, as `host.conf` says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Folders that stand for a host's programs and devices.
struct Host(tempfile::TempDir);

impl Host {
    /// With one NIC that vfio-pci has, and an interface `eth1` that is there once it is waited for.
    /// `karoo` notes how it is called.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path().join("sys");
        let device = sys.join("bus/pci/devices/0000:41:00.0");
        fs::create_dir_all(&device).unwrap();
        std::os::unix::fs::symlink("../../drivers/vfio-pci", device.join("driver")).unwrap();
        let host = Self(folder);
        host.program("karoo", r#"echo "$*" >> "$(dirname "$0")/../calls""#);
        host.program(
            "udevadm",
            r#"case "$*" in *eth1) mkdir -p "$3" ;; *) exit 1 ;; esac"#,
        );
        host.program("modprobe", "");
        host
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn program(&self, name: &str, text: &str) {
        let folder = self.path().join("bin");
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Prepares the host as `conf` says; how `karoo` was called.
    fn prepare(&self, conf: &str) -> (Output, Vec<String>) {
        let (file, calls) = (self.path().join("host.conf"), self.path().join("calls"));
        fs::write(&file, conf).unwrap();
        fs::write(&calls, "").unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/prepare-host");
        let programs = format!("{}:/usr/bin:/bin", self.path().join("bin").display());
        let output = Command::new("sh")
            .arg(script)
            .env("PATH", programs)
            .env("KAROO_HOST_CONF", file)
            .env("KAROO_SYS", self.path().join("sys"))
            .output()
            .unwrap();
        let calls = fs::read_to_string(calls).unwrap();
        (output, calls.lines().map(str::to_owned).collect())
    }
}

#[test]
fn profiles_are_about_the_interfaces_that_are_named() {
    let host = Host::new();
    for (conf, expected) in [
        ("", &[][..]),
        ("DATA_INTERFACES=eth1", &[]),
        ("TUNING=runtime", &["tune apply --yes runtime"]),
        (
            "TUNING='runtime /etc/karoo/own.toml'\nDATA_INTERFACES=eth1\n",
            &[
                "tune apply --yes --interface eth1 runtime",
                "tune apply --yes --interface eth1 /etc/karoo/own.toml",
            ],
        ),
        (
            "TUNING=runtime\nDATA_INTERFACES=eth1\nVFIO_DEVICES=0000:41:00.0\n",
            &["tune apply --yes --interface eth1,0000:41:00.0 runtime"],
        ),
    ] {
        let (output, calls) = host.prepare(conf);
        assert!(output.status.success(), "{conf}: {output:?}");
        assert_eq!(calls, expected, "{conf}");
    }
}

/// What else can be done is done.
#[test]
fn an_interface_that_is_not_there_is_named() {
    let host = Host::new();
    let (output, calls) = host.prepare("TUNING=runtime\nDATA_INTERFACES='eth2 eth1'\n");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("DATA_INTERFACES: there is no interface eth2"),
        "{stderr}"
    );
    assert_eq!(calls, ["tune apply --yes --interface eth1 runtime"]);
}
