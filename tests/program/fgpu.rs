//! The command line of `karoo fgpu`: files, and what is refused before anything starts.

use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{karoo, left_out};

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

const FGPU: [&str; 8] = [
    "--recv-interface=lo",
    "--send-interface=eth1",
    "--adc-sample-rate=1712e6",
    "--sync-time=1763700000",
    "--feng-id=3",
    "--wideband",
    "name=w,channels=1024,dst=239.10.0.0+7",
    "239.102.0.64+7",
];

/// A controller starts `fgpu`, and knows of no commands.
#[test]
fn a_link_of_katgpucbfs_name_is_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("fgpu");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_karoo"), &link).unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(&link).args(args).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&["--version"]).contains(env!("CARGO_PKG_VERSION")));
    let printed = run(&[&FGPU[..], &["--print-config"]].concat());
    assert!(
        printed.contains("feng-id = 3") && printed.contains("[[wideband]]"),
        "{printed}"
    );

    // What is printed can be fed back, and the command line counts more.
    let config = file(folder.path(), "fgpu.toml", &printed);
    let config = config.to_str().unwrap();
    assert_eq!(run(&["--config", config, "--print-config"]), printed);
    let changed = run(&["--config", config, "--feng-id=4", "--print-config"]);
    assert_eq!(changed, printed.replace("feng-id = 3", "feng-id = 4"));
}

/// Options may be shortened, and the last of each counts, as katgpucbf's.
#[test]
fn a_link_called_dsim_is_that_command() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("dsim");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_karoo"), &link).unwrap();
    let run = |args: &[&str]| Command::new(&link).args(args).output().unwrap();
    let version = run(&["--version"]);
    let version = String::from_utf8(version.stdout).unwrap();
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let (made, again) = (folder.path().join("1"), folder.path().join("2"));
    let samples = ["--samples=65536", "--sample-bits=8", "--output"];
    let shortened = [
        "--samples=4096",
        "--samples=65536",
        "--sample-b=12",
        "--sample-b=8",
    ];
    let shortened = [&shortened[..], &["--aiomonitor-webui-port=20102", "--out"]].concat();
    for (args, path) in [(&samples[..], &made), (&shortened, &again)] {
        let output = run(&[args, &[path.to_str().unwrap()]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
    }
    assert!(std::fs::read(made).unwrap() == std::fs::read(again).unwrap());
}

#[test]
fn live_engines_that_cannot_be_are_usage_errors() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = file(folder.path(), "wrong.toml", "no-such-option = 1");
    let narrowband =
        "--narrowband=name=n,channels=1024,dst=239.11.0.0,centre_frequency=1e8,decimation=7";
    let none = folder.path().join("none.toml");
    // 0.7 GB each.
    let chunks = "--recv-chunk-samples=268435456";
    for (args, expected) in [
        (vec![narrowband], "must be even without pass_bandwidth"),
        (vec!["--send-sample-bits=5"], "--send-sample-bits 5"),
        (vec!["--send-sample-bits=x"], "--send-sample-bits"),
        (vec!["--no-such-option"], "--no-such-option"),
        (
            vec!["--config", wrong.to_str().unwrap()],
            "no-such-option: is not an option",
        ),
        (vec!["--config", none.to_str().unwrap()], "none.toml"),
        (
            vec!["--send-interface=no-such-interface"],
            "no-such-interface",
        ),
        (
            vec!["--recv-interface=udp:lo", "--send-interface=af_packet:lo"],
            "'lo' is named for AF_PACKET and for UDP sockets",
        ),
        (
            vec!["--send-interface=lo", chunks, "--recv-spare-chunks=1024"],
            "lower --recv-spare-chunks",
        ),
    ] {
        let output = karoo([&["fgpu"], &FGPU[..], &args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}

/// A journal of the test's own, where the command looks for the system's. The command logs two
/// things, and fails.
#[test]
fn the_journal_has_messages_with_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let (journal, path) = (folder.path().join("journal"), folder.path());
    std::fs::create_dir(&journal).unwrap();
    let socket = UnixDatagram::bind(journal.join("socket")).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let within = "mkdir -p /run/systemd && mount --bind \"$0\" /run/systemd && exec \"$@\"";
    let stderr = tempfile::tempfile().unwrap();
    let metadata = stderr.metadata().unwrap();
    let stream = format!("{}:{}", metadata.dev(), metadata.ino());
    let can = Command::new("unshare").args(["--mount", "true"]).status();
    if !can.is_ok_and(|status| status.success()) {
        left_out("no mount namespaces");
        return;
    }
    for (option, variable) in [("--log=journald", ""), ("--log=auto", &stream[..])] {
        let status = Command::new("unshare")
            .args(["--mount", "sh", "-c", within])
            .arg(path)
            .args([env!("CARGO_BIN_EXE_karoo"), "fgpu"])
            .args(FGPU)
            .args([
                option,
                "--monitor-log=a file",
                "--send-interface=no-such-interface",
            ])
            .env_remove("RUST_LOG")
            .env("JOURNAL_STREAM", variable)
            .env("KATSDP_LOG_ONELINE", "1")
            .stdout(Stdio::null())
            .stderr(stderr.try_clone().unwrap())
            .status();
        assert_eq!(status.unwrap().code(), Some(2), "{option}");
        let entry = || {
            let mut entry = [0; 4096];
            let bytes = socket.recv(&mut entry).unwrap();
            String::from_utf8(entry[..bytes].to_vec()).unwrap()
        };
        let entries = [entry(), entry()];
        for (entry, expected) in entries.iter().zip([
            [
                "PRIORITY=4",
                "F_VARIABLE=KATSDP_LOG_ONELINE",
                "variable=\"KATSDP_LOG_ONELINE\"",
            ],
            [
                "PRIORITY=6",
                "F_OPTIONS=--monitor-log",
                "MESSAGE=taken for compatibility, without effect options=\"--monitor-log\"",
            ],
        ]) {
            let whole = entry.lines().any(|line| line == expected[1]);
            assert!(
                whole && expected.iter().all(|e| entry.contains(e)),
                "{entry}"
            );
            assert!(entry.contains("SYSLOG_IDENTIFIER=karoo\n"), "{entry}");
        }
    }
}

/// Exit code 2, and what was said.
fn refused(args: &[&str]) -> String {
    let output = karoo(args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    said
}

/// The line that is shown is one that is taken.
#[test]
fn all_that_is_missing_comes_with_a_line_to_copy() {
    let said = refused(&["fgpu", "--gain", "0.5", "--wideband", FGPU[6]]);
    assert!(
        said.contains(
            "SRC, --recv-interface, --send-interface, --adc-sample-rate, --sync-time missing"
        ),
        "{said}"
    );
    let line = said
        .lines()
        .find(|line| line.starts_with("  karoo fgpu "))
        .expect("a line");
    assert!(
        line.contains("--gain 0.5 ") && line.contains(FGPU[6]),
        "{line}"
    );
    let words: Vec<_> = line
        .split_whitespace()
        .skip(1)
        .chain(["--print-config"])
        .collect();
    let output = karoo(words);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let said = refused(&["dsim", "--interface=lo"]);
    assert!(said.contains("--adc-sample-rate, DEST missing"), "{said}");
}

#[test]
fn units_are_taken_in_files_and_mistakes_name_file_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let with = |rate: &str| {
        let text = format!("adc-sample-rate = {rate}\n");
        file(folder.path(), "engine.toml", &text)
    };
    let args = |path: &Path| -> Vec<String> {
        let mut args: Vec<_> = FGPU
            .iter()
            .filter(|arg| !arg.contains("adc-sample-rate"))
            .map(|arg| arg.to_string())
            .collect();
        args.extend([
            "--config".into(),
            path.display().to_string(),
            "--print-config".into(),
        ]);
        args.insert(0, "fgpu".into());
        args
    };
    for rate in ["1712e6", "\"1712 MHz\"", "\"1.712G\"", "1712000000"] {
        let output = karoo(args(&with(rate)));
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            printed.contains("adc-sample-rate = 1712000000.0\n"),
            "{rate}: {printed}"
        );
    }
    let path = with("\"1712 mhz\"");
    let said = refused(&args(&path).iter().map(String::as_str).collect::<Vec<_>>());
    let named = format!(
        "--config {}: adc-sample-rate = '1712 mhz': ",
        path.display()
    );
    assert!(
        said.contains(&named) && said.contains("write M for a million"),
        "{said}"
    );
    let path = file(
        folder.path(),
        "engine.toml",
        "[[wideband]]\nname = 'w'\nchanels = 64\n",
    );
    let config = format!("--config={}", path.display());
    let said = refused(&["fgpu", &config]);
    assert!(
        said.contains(&path.display().to_string()) && said.contains("did you mean channels?"),
        "{said}"
    );
}
