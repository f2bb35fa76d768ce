//! What commands leave, and say, where there is no room for what they write.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::flow::graph;
use crate::support::{data, host, karoo_ok, refused};

/// Runs the binary, which may write to pipes and devices, but no byte to a file.
fn without_room(args: &[&str]) -> Output {
    let script = r#"trap "" XFSZ; ulimit -f 0; exec "$0" "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_karoo")]);
    command.args(args).output().unwrap()
}

/// Names and contents of files.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let file = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    };
    entries.map(file).collect()
}

#[test]
fn results_appear_whole_or_not_at_all() {
    let host = host::lay_out(&host::record("milan"));
    let root = host.path().to_str().unwrap();
    let made = tempfile::tempdir().unwrap();
    let at = |name: &str| made.path().join(name).to_str().unwrap().to_owned();
    let (picture, truth, cores) = (at("p.svg"), at("t.json"), at("c.json"));
    let capture = data("tones-10bit.pcap");
    let wideband = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=4096,taps=4";
    let replay = [
        "replay",
        capture.to_str().unwrap(),
        "-o",
        "/dev/null",
        "--backend=cpu",
        "--quiet",
        "--wideband",
        wideband,
        "--report",
    ];
    let folder = made.path().to_str().unwrap();
    let message = data("tones-10bit.pcap");
    let message = message.to_str().unwrap();
    let air = at("air.pcap");
    let graph = graph("filter.toml");
    let svg = at("graph.svg");
    let cases: [(&[&str], i32); 7] = [
        (
            &[
                "modem",
                "tx",
                "--sample-rate=1M",
                "--mod=qam256",
                "--input",
                message,
                "--output",
                &air,
            ],
            1,
        ),
        (&["flow", "check", &graph, "--guess", "--svg", &svg], 1),
        (&["plan", "--root", root, "--picture", &picture], 1),
        (&["man", folder], 2),
        (
            &[
                "dsim",
                "--output=/dev/null",
                "--samples=4096",
                "--truth",
                &truth,
            ],
            1,
        ),
        (
            &[
                "bench",
                "cores",
                "--cpus=0",
                "--milliseconds=1",
                "--output",
                &cores,
            ],
            1,
        ),
        (&[&replay[..], &[folder]].concat(), 1),
    ];
    for (args, code) in cases {
        refused(&without_room(args), code, "File too large");
        assert_eq!(files(made.path()), BTreeMap::new(), "{args:?}");
    }
}

/// Also files that a run would remove once its own are there.
#[test]
fn spectra_of_an_earlier_run_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, spectra) = (
        folder.path().join("out.pcap"),
        folder.path().join("spectra"),
    );
    let (input, output) = (data("tones-10bit.pcap"), capture.to_str().unwrap());
    let wideband = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=4096,taps=4";
    let replay = ["replay", input.to_str().unwrap(), "-o", output];
    let options = ["--backend=cpu", "--quiet", "--wideband", wideband];
    karoo_ok([&replay[..], &options].concat());
    let sink = ["sink", output, "--output-dir", spectra.to_str().unwrap()];
    karoo_ok(sink);
    let file = |name: &str| spectra.join(name);
    fs::write(file("stream0.samples.npy"), "old").unwrap();
    let before = files(&spectra);
    assert_eq!(before.len(), 6, "{:?}", before.keys());
    refused(&without_room(&sink), 1, "stream0.npy: File too large");
    assert!(files(&spectra) == before);
    karoo_ok(sink);
    assert_eq!(files(&spectra).len(), 5);
}

#[test]
fn what_cannot_be_printed_is_told_also_where_a_command_fails() {
    let host = host::lay_out(&host::record("milan"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_karoo"));
    command.args(["tune", "check", "--json", "--root"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let command = command.arg(host.path()).stdout(Stdio::from(full));
    let output = command.output().unwrap();
    for why in ["are not as they should be", "cannot print: No space left"] {
        refused(&output, 1, why);
    }
}

#[test]
fn a_run_ends_well_where_standard_error_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [output, samples] =
        ["out.pcap", "out.cf32"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let capture = data("tones-10bit.pcap");
    let wideband = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=4096,taps=4";
    let replay = ["replay", capture.to_str().unwrap(), "-o", &output];
    let options = ["--backend=cpu", "--wideband", wideband];
    fs::write(&samples, [0; 64]).unwrap();
    let channel = ["modem", "channel", "-i", &samples, "-o", "-"];
    for args in [&[&replay[..], &options].concat()[..], &channel] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_karoo"));
        let full = File::options().write(true).open("/dev/full").unwrap();
        let done = command.args(args).stderr(full).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
    }
    assert!(fs::metadata(&output).unwrap().len() > 0);
}

/// DPDK would abort the process, and leave the part that it has written.
#[test]
fn too_few_file_descriptors_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.pcap");
    let mut command = Command::new("sh");
    let script = r#"ulimit -n 20; exec "$0" "$@""#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_karoo"), "replay"]);
    command.arg(data("tones-10bit.pcap")).arg("-o").arg(&output);
    let wideband = "name=w,channels=64,dst=239.10.1.0,jones_per_batch=4096,taps=4";
    command.args(["--backend=cpu", "--wideband", wideband]);
    refused(&command.output().unwrap(), 1, "ulimit -n");
    assert_eq!(files(folder.path()), BTreeMap::new());
}
