//! The version that the program tells, with the commit of its sources.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{data, karoo_ok, left_out};

/// The version behind the program's name.
fn told() -> String {
    let said = karoo_ok(["--version"]);
    let version = said.trim_end().strip_prefix("karoo ");
    version.expect("the program's name").to_owned()
}

#[test]
fn the_version_has_a_commit_that_git_knows() {
    let git = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        output.is_ok_and(|output| output.status.success())
    };
    if !git(&["rev-parse", "HEAD"]) || option_env!("KAROO_COMMIT").is_some() {
        left_out("no git that knows these sources: nothing holds the commit of --version");
        return;
    }
    let version = told();
    let commit = version.strip_prefix(concat!(env!("CARGO_PKG_VERSION"), "+"));
    let commit = commit.unwrap_or_else(|| panic!("no commit: {version}"));
    let commit = commit.strip_suffix(".modified").unwrap_or(commit);
    assert!(commit.len() >= 8, "{version}");
    let object = format!("{commit}^{{commit}}");
    assert!(git(&["cat-file", "-e", &object]), "{version}");
}

#[test]
fn documents_tell_the_same_version() {
    let version = told();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let capture = data("tones-10bit.pcap");
    karoo_ok([
        "replay",
        capture.to_str().unwrap(),
        "--output",
        &path("out.pcap"),
        "--report",
        &path("report"),
        "--wideband",
        "name=w,channels=64,dst=239.10.1.0+1,jones_per_batch=4096,taps=4",
        "--adc-sample-rate",
        "1712e6",
        "--gain",
        "0.05",
        "--backend",
        "cpu",
        "--quiet",
    ]);
    let report = fs::read_to_string(Path::new(&path("report")).join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["karoo"], version.as_str());
}
