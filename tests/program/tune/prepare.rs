//! What `karoo-host.service` asks `karoo tune` for, as `host.conf` says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::left_out;

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
            r#"case "$*" in *eth1) mkdir -p "$3/device" ;; *) exit 1 ;; esac"#,
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
            .env("KAROO_NETWORK", self.path())
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
        // Whatever is up.
        (
            "TUNING=runtime",
            &["tune apply --yes --interface none runtime"],
        ),
        (
            "TUNING=runtime\nVFIO_DEVICES=0000:41:00.0\n",
            &["tune apply --yes --interface 0000:41:00.0 runtime"],
        ),
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

/// What makes them waits for the script to end.
#[test]
fn interfaces_that_are_made_later_are_not_waited_for() {
    let host = Host::new();
    let netdev = host.path().join("data.netdev");
    fs::write(netdev, "[NetDev]\nName=data\nKind=vlan\n").unwrap();
    host.program(
        "udevadm",
        r#"echo "waits for $3" >> "$(dirname "$0")/../calls""#,
    );
    let (output, calls) = host.prepare(
        "TUNING=runtime\nDATA_INTERFACES='eth1.5 bond0 vlan5 br0 data'\nHUGE_PAGES_2M=0\n",
    );
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    for name in ["eth1.5", "bond0", "vlan5", "br0", "data"] {
        let said = format!("DATA_INTERFACES: {name} is no NIC's");
        assert!(stderr.contains(&said), "{stderr}");
    }
    assert_eq!(calls, ["tune apply --yes --interface none runtime"]);
}

/// Whatever its name, and also when it is there because the service is restarted.
#[test]
fn only_interfaces_of_nics_are_tuned() {
    let host = Host::new();
    for name in ["lan", "eth1.5"] {
        fs::create_dir_all(host.path().join("sys/class/net").join(name)).unwrap();
    }
    let conf = "TUNING=runtime\nDATA_INTERFACES='lan eth1.5 feed 0000:41:00.0 eth1'\n";
    let (output, calls) = host.prepare(conf);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    for said in [
        "lan is no NIC's, so it is made only after this service",
        "eth1.5 is no NIC's, so it is made only after this service",
        "there is no interface feed; see ip link. Of a VLAN, bond or bridge",
        "0000:41:00.0 is a PCI address; those belong into VFIO_DEVICES",
    ] {
        assert!(stderr.contains(said), "no {said:?} in {stderr}");
    }
    assert_eq!(calls, ["tune apply --yes --interface eth1 runtime"]);
}

/// `karoo tune` does not know it by its address, and would change nothing at all.
#[test]
fn a_device_that_keeps_its_driver_does_not_keep_the_rest_from_being_tuned() {
    let host = Host::new();
    // Without an IOMMU.
    let device = host.path().join("sys/bus/pci/devices/0000:42:00.0");
    fs::create_dir_all(&device).unwrap();
    std::os::unix::fs::symlink("../../drivers/ice", device.join("driver")).unwrap();
    let conf = "TUNING=runtime\nVFIO_DEVICES='0000:42:00.0 0000:41:00.0'\n";
    let (output, calls) = host.prepare(conf);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("0000:42:00.0 is behind no IOMMU"),
        "{stderr}"
    );
    assert_eq!(calls, ["tune apply --yes --interface 0000:41:00.0 runtime"]);
}

/// As the operator finds them in the installed file, which no one turns into a page.
#[test]
fn the_manuals_commands_have_no_signs_of_markdown() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/appliance.md");
    let page = fs::read_to_string(page).unwrap();
    for line in page.lines().filter(|line| line.contains("`journalctl")) {
        assert!(!line.contains(r"\|"), "{line}");
    }
}

/// Nobody sees dpkg's questions.
#[test]
fn an_upgrade_keeps_the_hosts_files_without_asking() {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") {
        left_out("scripts/boot is for Debian");
        return;
    }
    let host = Host::new();
    host.program("id", "echo 0");
    for name in ["apt-get", "systemctl"] {
        host.program(
            name,
            r#"echo "$(basename "$0") $*" >> "$(dirname "$0")/../calls""#,
        );
    }
    let package = host.path().join("karoo.deb");
    fs::write(&package, "").unwrap();
    let programs = format!("{}:/usr/bin:/bin", host.path().join("bin").display());
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/boot"))
        .arg(&package)
        .env("PATH", programs)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let calls = fs::read_to_string(host.path().join("calls")).unwrap();
    let install = calls
        .lines()
        .find(|line| line.starts_with("apt-get install"))
        .unwrap();
    for option in ["--force-confdef", "--force-confold"] {
        let option = format!("-o Dpkg::Options::={option} ");
        assert!(install.contains(&option), "{install}");
    }
}

#[test]
fn packages_are_built_with_what_finds_their_libraries() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/package");
    let text = fs::read_to_string(script).unwrap();
    assert!(text.contains("scripts/bootstrap dpkg-dev\n"));
    // Where the program is given, nothing is installed.
    let folder = tempfile::tempdir().unwrap();
    for name in ["bash", "dirname", "realpath"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{name}"), folder.path().join(name)).unwrap();
    }
    let output = Command::new("/usr/bin/bash")
        .arg(script)
        .arg(folder.path().join("out"))
        .arg("/bin/true")
        .env("PATH", folder.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("apt install dpkg-dev"), "{stderr}");
}

/// A folder such as `~` or `/` has a `bin` or a `root` of its own.
#[test]
fn what_is_made_takes_the_place_of_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let [goal, programs] = ["goal", "programs"].map(|name| folder.path().join(name));
    // Nothing is built: of programs there are the scripts' first ones.
    fs::create_dir(&programs).unwrap();
    for name in ["bash", "dirname", "mkdir", "ls", "rm", "realpath"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{name}"), programs.join(name)).unwrap();
    }
    for (script, place, said) in [
        ("bundle", "bin", "has other files: name a new folder"),
        ("oci", "root", "is no earlier image: name another"),
        ("package", "root", "is no earlier package: name another"),
    ] {
        let own = goal.join(place).join("own");
        fs::create_dir_all(goal.join(place)).unwrap();
        fs::write(&own, "").unwrap();
        let output = Command::new("/usr/bin/bash")
            .arg(
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("scripts")
                    .join(script),
            )
            .args([goal.as_path(), Path::new("/bin/true")])
            .env("PATH", &programs)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{script}: {stderr}");
        assert!(stderr.contains(said), "{stderr}");
        assert!(own.exists(), "{script}");
    }
}

/// Options may be shortened; of a backend that is given twice, the last one counts.
#[test]
fn the_image_asks_for_a_gpu_where_nothing_else_does() {
    let host = Host::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/container/fgpu");
    for (words, expected) in [
        (&["x"][..], "fgpu --backend=cuda x"),
        (&["--back", "cpu"], "fgpu --backend=cuda --back cpu"),
        (&["--backend=cpu"], "fgpu --backend=cpu"),
        (&["--config=a.toml"], "fgpu --config=a.toml"),
        (&["--conf", "a.toml"], "fgpu --conf a.toml"),
    ] {
        let calls = host.path().join("calls");
        fs::write(&calls, "").unwrap();
        let programs = format!("{}:/usr/bin:/bin", host.path().join("bin").display());
        let status = Command::new("sh")
            .arg(script)
            .args(words)
            .env("PATH", programs)
            .env_remove("KAROO_BACKEND")
            .status();
        assert!(status.unwrap().success(), "{words:?}");
        assert_eq!(fs::read_to_string(calls).unwrap().trim_end(), expected);
    }
}
