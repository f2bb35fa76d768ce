//! Which engines an upgrade of the package restarts: `packaging/restart-engines`, with stand-ins
//! for the service manager's programs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

const GOOD: &str = "adc-sample-rate = 1712e6\nsync-time = 1763700000.0\nfeng-id = 0\narray-size = 4\n\
                    recv-interface = [\"eth0\"]\nsend-interface = [\"eth0\"]\n\
                    src = [\"239.102.0.64+7:7148\", \"239.102.1.64+7:7148\"]\n\
                    [[wideband]]\nname = \"wideband\"\nchannels = 1024\ndst = \"239.10.0.0+3:7148\"\n";

/// A host with these engines running, whose files are `FOLDER/etc/NAME.toml`.
struct Host(tempfile::TempDir);

impl Host {
    fn new(engines: &[(&str, &str)]) -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        for folder in ["bin", "etc"] {
            fs::create_dir(host.path().join(folder)).unwrap();
        }
        let mut units = String::new();
        for (name, text) in engines {
            host.file(&format!("{name}.toml"), text);
            units += &format!("karoo@{name}.service loaded active running Karoo engine {name}\n");
        }
        fs::write(host.path().join("units"), units).unwrap();
        host.program(
            "systemctl",
            r#"here=$(dirname "$0")/..
            case $1 in
                is-active) ! grep -qs "$3" "$here/down" ;;
                *) cat "$here/units" ;;
            esac"#,
        );
        // The manager runs the command with the variables of the file, and puts them in.
        host.program(
            "systemd-run",
            r#"while :; do
                case $1 in
                    --property=EnvironmentFile=-*) file=${1#--property=EnvironmentFile=-} ;;
                    --*) ;;
                    *) break ;;
                esac
                shift
            done
            if [ -e "$file" ]; then . "$file"; fi
            eval "$*""#,
        );
        host.program(
            "deb-systemd-invoke",
            r#"echo "$*" >> "$(dirname "$0")/../calls"; ! grep -qs "$2" "$(dirname "$0")/../broken""#,
        );
        symlink(
            env!("CARGO_BIN_EXE_karoo"),
            host.path().join("bin").join("karoo"),
        )
        .unwrap();
        host
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str, text: &str) {
        fs::write(self.path().join("etc").join(name), text).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// The engines that were restarted, in order, and what was said.
    fn restarted(&self) -> (Vec<String>, String) {
        let calls = self.path().join("calls");
        fs::write(&calls, "").unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/restart-engines");
        let programs = format!("{}:/usr/bin:/bin", self.path().join("bin").display());
        let output = Command::new("sh")
            .arg(script)
            .env("PATH", programs)
            .env("KAROO_FOLDER", self.path().join("etc"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let calls = fs::read_to_string(calls).unwrap();
        let units = calls.lines().map(|line| {
            let unit = line.strip_prefix("try-restart karoo@").expect(line);
            unit.trim_end_matches(".service").to_owned()
        });
        let said = String::from_utf8(output.stdout).unwrap();
        (units.collect(), said)
    }
}

#[test]
fn engines_whose_files_are_refused_keep_the_program_from_before() {
    let wrong = GOOD.replace("feng-id = 0", "feng-id = 4");
    let host = Host::new(&[("m000h", GOOD), ("m001h", &wrong), ("m002h", GOOD)]);
    // Further options count too.
    host.file(
        "m002h.env",
        "KAROO_OPTIONS='--feng-id=1 --katcp-port=7148'\n",
    );
    let (restarted, said) = host.restarted();
    assert_eq!(restarted, ["m000h", "m002h"], "{said}");
    for part in ["m001h runs on", "feng-id", "systemctl restart karoo@m001h"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("m000h") && !said.contains("m002h"), "{said}");
    host.file(
        "m002h.env",
        "KAROO_OPTIONS='--feng-id=1 --no-such-option'\n",
    );
    let (restarted, said) = host.restarted();
    assert_eq!(restarted, ["m000h"], "{said}");
    assert!(said.contains("--no-such-option"), "{said}");
}

#[test]
fn no_engine_is_restarted_if_the_host_says_so() {
    let host = Host::new(&[("m000h", GOOD)]);
    host.file("host.conf", "RESTART_ON_UPGRADE=no\n");
    let (restarted, said) = host.restarted();
    assert!(restarted.is_empty(), "{restarted:?}");
    assert!(said.contains("systemctl restart karoo@m000h"), "{said}");
    host.file("host.conf", "RESTART_ON_UPGRADE=yes\n");
    assert_eq!(host.restarted().0, ["m000h"]);
}

#[test]
fn engines_behind_one_that_does_not_start_are_left_alone() {
    let host = Host::new(&[("m000h", GOOD), ("m001h", GOOD), ("m002h", GOOD)]);
    fs::write(host.path().join("broken"), "karoo@m001h.service\n").unwrap();
    let (restarted, said) = host.restarted();
    assert_eq!(restarted, ["m000h", "m001h"], "{said}");
    assert!(said.contains("journalctl -u karoo@m001h"), "{said}");
}

/// Its interface is down, say: the new program is not to blame.
#[test]
fn an_engine_that_was_not_up_holds_no_other_back() {
    let host = Host::new(&[("m000h", GOOD), ("m001h", GOOD)]);
    for file in ["broken", "down"] {
        fs::write(host.path().join(file), "karoo@m000h.service\n").unwrap();
    }
    let (restarted, said) = host.restarted();
    assert_eq!(restarted, ["m000h", "m001h"], "{said}");
    assert!(said.contains("m000h was not up before either"), "{said}");
}
