//! `karoo qualify`: what is right meets the requirements, and faults on purpose do not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tempfile::tempdir;

use crate::support::{documents, karoo, karoo_ok, left_out, refused};

/// Few channels, so that it takes little time.
const OUTPUT: &str = "name=w,channels=64,dst=239.10.0.0";

/// The report of these requirements, and the exit code.
fn qualify(only: &str, more: &[&str]) -> (Value, Option<i32>) {
    let args = ["qualify", "--json", "--backend", "cpu", "--only", only];
    let output = karoo(args.iter().chain(more));
    let report = String::from_utf8(output.stdout).unwrap();
    documents::check("qualification", &report);
    (serde_json::from_str(&report).unwrap(), output.status.code())
}

/// The value of a figure.
fn figure(report: &Value, requirement: &str, name: &str) -> f64 {
    let all = report["requirements"].as_array().unwrap();
    let of = all.iter().find(|of| of["name"] == requirement).unwrap();
    let figures = of["figures"].as_array().unwrap();
    let named = |figure: &&Value| figure["name"].as_str().unwrap().starts_with(name);
    let found = figures.iter().find(named);
    found.unwrap_or_else(|| panic!("{name}: {of}"))["value"]
        .as_f64()
        .unwrap()
}

/// A program whose `replay` is this script, in `folder`.
fn replaying(folder: &Path, script: &str) -> PathBuf {
    let program = folder.join("program");
    let karoo = env!("CARGO_BIN_EXE_karoo");
    let script = format!("#!/bin/bash\n[ $1 = replay ] || exec {karoo} \"$@\"\n{script}\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn what_is_right_meets_the_requirements_and_has_a_report() {
    let folder = tempdir().unwrap();
    let report = folder.path().join("report");
    let more = ["--wideband", OUTPUT, "--report", report.to_str().unwrap()];
    let all = "channelisation,phase,application-time,application-rate,group-delay,gain,rounding";
    let (document, code) = qualify(all, &more);
    assert_eq!(
        (code, &document["passed"]),
        (Some(0), &true.into()),
        "{document}"
    );
    assert_eq!(document["requirements"].as_array().unwrap().len(), 7);
    let page = fs::read_to_string(report.join("report.html")).unwrap();
    assert!(page.contains("All 7 requirements are met"), "{page}");
    // What the style makes readable on dark paper and on a phone.
    let count = |part: &str| page.matches(part).count();
    let plots = count("<figure class=\"plot\">");
    assert!(plots > 0 && plots == count("<svg"), "{plots} plots");
    assert_eq!(count("<table>"), count("<div class=\"scroll\"><table>"));
    documents::check(
        "qualification",
        &fs::read_to_string(report.join("report.json")).unwrap(),
    );
}

/// Needs Debian's chromium; without, it passes.
#[test]
fn the_page_is_printed_by_chromium_where_there_is_one() {
    if let Err(error) = Command::new("chromium").arg("--version").output() {
        left_out(&format!("no chromium: {error}"));
        return;
    }
    let folder = tempdir().unwrap();
    let report = folder.path().to_str().unwrap();
    let (document, code) = qualify("gain", &["--wideband", OUTPUT, "--report", report]);
    assert_eq!(code, Some(0), "{document}");
    let pdf = fs::read(folder.path().join("report.pdf")).unwrap();
    assert!(pdf.starts_with(b"%PDF-"));
    assert!(pdf.trim_ascii_end().ends_with(b"%%EOF"));
    assert!(
        pdf.windows(6)
            .any(|part| part == b"/Page\n" || part == b"/Page ")
    );
}

/// With the right window it takes as long again: that is in `scripts/check-release`.
#[test]
fn a_wrong_window_makes_channels_too_wide() {
    let wrong = "name=w,channels=256,dst=239.10.0.0,window_function=rect";
    let (document, code) = qualify("channel-shape", &["--wideband", wrong]);
    assert_eq!(
        (code, &document["passed"]),
        (Some(1), &false.into()),
        "{document}"
    );
    // At -53 dB they reach into the channels beside them, at -3 dB they are as they should be.
    assert!(figure(&document, "channel-shape", "width at -53 dB over") > 2.0);
    let narrow = figure(&document, "channel-shape", "width at -3 dB");
    assert!((0.9..1.0).contains(&narrow), "{narrow}");
}

#[test]
fn a_phase_that_is_off_by_two_degrees_is_told() {
    let folder = tempdir().unwrap();
    let program = folder.path().join("off");
    let karoo = env!("CARGO_BIN_EXE_karoo");
    // 0.01 rad become 0.045.
    let script = format!("#!/bin/bash\nexec {karoo} \"${{@/0,0:0.01,0/0,0:0.045,0}}\"\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let more = ["--wideband", OUTPUT, "--program", program.to_str().unwrap()];
    let (document, code) = qualify("phase", &more);
    assert_eq!(code, Some(1), "{document}");
    let error = figure(&document, "phase", "largest error, 0.01 rad");
    assert!((1.5..3.0).contains(&error), "{error}");
    assert!(figure(&document, "phase", "largest error, π") < 1.0);
}

/// Its group delay is that of half as many taps.
#[test]
fn a_group_delay_that_is_not_the_one_that_is_told_is_found() {
    let folder = tempdir().unwrap();
    let program = folder.path().join("off");
    let karoo = env!("CARGO_BIN_EXE_karoo");
    let script = format!("#!/bin/bash\nexec {karoo} \"${{@/,taps=16/,taps=8}}\"\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let output = format!("{OUTPUT},taps=16");
    let more = [
        "--wideband",
        &output,
        "--program",
        program.to_str().unwrap(),
    ];
    let (document, code) = qualify("group-delay", &more);
    assert_eq!(code, Some(1), "{document}");
    let delay = figure(&document, "group-delay", "group delay");
    assert!((delay + (8.0 * 128.0 - 1.0) / 2.0).abs() < 0.5, "{delay}");
}

#[test]
fn a_program_that_fails_is_no_success() {
    let folder = tempdir().unwrap();
    let program = replaying(folder.path(), "echo out of luck >&2; exit 3");
    let more = ["--wideband", OUTPUT, "--program", program.to_str().unwrap()];
    let (document, code) = qualify("gain", &more);
    assert_eq!(code, Some(1), "{document}");
    let error = document["requirements"][0]["error"].as_str().unwrap();
    assert!(error.ends_with("(exit status: 3): out of luck"), "{error}");
}

/// Also the command that it runs at that moment ends, and what that has started.
#[test]
fn a_signal_leaves_nothing_behind() {
    ended_by_a_signal("exec sleep 1000");
    ended_by_a_signal("sleep 1000; true");
}

fn ended_by_a_signal(sleeps: &str) {
    let folder = tempdir().unwrap();
    let begun = folder.path().join("begun");
    mkfifo(&begun, Mode::S_IRWXU).unwrap();
    let waits = format!("echo > {}; {sleeps}", begun.display());
    let program = replaying(folder.path(), &waits);
    let runs = tempdir().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args([
            "qualify",
            "--only=gain",
            "--backend=cpu",
            "--wideband",
            OUTPUT,
        ])
        .arg("--program")
        .arg(&program)
        .env("TMPDIR", runs.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fs::read(&begun).unwrap();
    assert_eq!(fs::read_dir(runs.path()).unwrap().count(), 1);
    let id = child.id().to_string();
    let told = Command::new("kill").args(["-TERM", &id]).status();
    assert!(told.unwrap().success());
    refused(&child.wait_with_output().unwrap(), 1, "interrupted");
    assert_eq!(fs::read_dir(runs.path()).unwrap().count(), 0);
}

#[test]
fn requirements_are_listed_and_others_refused() {
    let list = karoo_ok(["qualify", "--list"]);
    assert!(
        list.lines().count() == 17 && list.contains("CBF-REQ-0126"),
        "{list}"
    );
    assert!(list.lines().all(|line| line == line.trim_end()), "{list}");
    let narrow = ["--only", "filter-response", "--wideband", OUTPUT];
    let rate = ["--live", "127.0.0.1:1", "--adc-sample-rate", "1M"];
    for (more, wanted) in [
        (&["--only", "speed"][..], "channelisation"),
        (&["--only", "request-time"][..], "give its --live HOST:PORT"),
        (&["--wideband", "name=w"][..], "channels"),
        (
            &["--wideband", "name=w,channels=8,dst=239.1.1.1"][..],
            "at least 64",
        ),
        (&["--program", "/nowhere/karoo"][..], "/nowhere/karoo"),
        // Before anything is measured.
        (
            &["--report", "/dev/null/folder"][..],
            "--report /dev/null/folder",
        ),
        (&narrow[..], "--list"),
        (&rate[..], "cannot be used with '--adc-sample-rate"),
    ] {
        let output = karoo(["qualify"].iter().chain(more));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {said}");
        assert!(said.contains(wanted), "{more:?}: {said}");
    }
}
