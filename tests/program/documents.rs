//! JSON documents: each command's is what its schema says, and the schemas in `docs/schemas` are
//! those that the program prints.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::tempdir;

use crate::support::documents::{check, schema};
use crate::support::{data, host, karoo, karoo_ok};

/// Names of all documents.
fn names() -> Vec<String> {
    let list = karoo_ok(["schema"]);
    let names = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_schemas_in_the_documents_are_those_of_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemas");
    let accept = std::env::var_os("KAROO_TEST_ACCEPT").is_some();
    let names = names();
    let page = fs::read_to_string(folder.join("../json.md")).unwrap();
    let told = page.split("`karoo/").skip(1);
    let told = told.filter_map(|rest| rest.split('`').next());
    let mut told: Vec<_> = told.filter(|name| !name.is_empty()).collect();
    let mut all: Vec<_> = names.iter().map(String::as_str).collect();
    told.sort_unstable();
    all.sort_unstable();
    assert_eq!(told, all, "docs/json.md tells of each document once");
    let mut files = Vec::new();
    for name in &names {
        let path = folder.join(format!("{name}.json"));
        let printed = karoo_ok(["schema", name]);
        if accept {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &printed).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == printed,
            "{}: if the change is meant, run the test again with KAROO_TEST_ACCEPT=1; if a field went or changed its \
             meaning, raise the version too",
            path.display()
        );
        jsonschema::meta::validate(&schema(name)).expect("a schema of its dialect");
        files.push(path);
    }
    let mut there: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    there.sort();
    files.sort();
    assert_eq!(there, files, "files of documents that there are none of");
    assert_eq!(
        karoo_ok(["schema", "karoo/live"]),
        karoo_ok(["schema", "live"])
    );
    let refused = karoo(["schema", "nothing"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("replay-report"));
}

#[test]
fn a_replay_and_what_is_around_it_keep_their_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (capture, truth) = (path("capture.pcap"), path("truth.json"));
    let faults = ["--faults", "drop=0.02,corrupt=0.01", "--samples", "1048576"];
    karoo_ok(
        ["dsim", "--output", &capture, "--truth", &truth]
            .iter()
            .chain(&faults),
    );
    check("dsim-truth", &fs::read_to_string(&truth).unwrap());

    let (out, report, requests) = (path("out.pcap"), path("report"), path("requests"));
    fs::write(&requests, "0 ?gain wide 0 0.1\n0 ?gain nowhere 0 1\n").unwrap();
    let wide = "name=wide,channels=64,dst=239.10.1.0+1,jones_per_batch=4096,taps=4";
    let narrow = "name=zoom,channels=64,dst=239.10.2.0,jones_per_batch=4096,taps=4,centre_frequency=284M,decimation=8";
    karoo_ok([
        "replay",
        &capture,
        "--output",
        &out,
        "--report",
        &report,
        "--requests",
        &requests,
        "--wideband",
        wide,
        "--narrowband",
        narrow,
        "--gain",
        "auto",
        "--backend",
        "cpu",
        "--quiet",
    ]);
    let report = fs::read_to_string(Path::new(&report).join("report.json")).unwrap();
    check("replay-report", &report);
    check("sink-report", &karoo_ok(["sink", &out, "--json"]));
    let arrays = path("arrays");
    for rate in [&[][..], &["--adc-sample-rate", "1712M"]] {
        let sink = ["sink", &out, "--output-dir", &arrays];
        // Heaps were lost on purpose.
        karoo(sink.iter().chain(rate));
        for stream in ["stream0", "stream1"] {
            let file = Path::new(&arrays).join(format!("{stream}.json"));
            check("sink-stream", &fs::read_to_string(file).unwrap());
        }
    }
    // Nothing came, so that much is not known.
    let (empty, report) = (data("tones-10bit.pcap"), path("empty"));
    let none = karoo([
        "replay",
        empty.to_str().unwrap(),
        "--output",
        &out,
        "--report",
        &report,
        "--sources",
        "239.1.1.1:7148",
        "--backend",
        "cpu",
        "--quiet",
    ]);
    assert_eq!(none.status.code(), Some(1));
    check(
        "replay-report",
        &fs::read_to_string(Path::new(&report).join("report.json")).unwrap(),
    );
}

#[test]
fn plans_and_findings_keep_their_schemas() {
    for name in ["milan", "dual-epyc"] {
        let host = host::lay_out(&host::record(name));
        let root = host.path().to_str().unwrap();
        let plan = karoo_ok(["plan", "--root", root, "--engines", "2", "--json"]);
        check("plan", &plan);
        let found = karoo(["tune", "check", "appliance", "--root", root, "--json"]);
        check("tune-check", &String::from_utf8_lossy(&found.stdout));
    }
    let cores = karoo_ok(["bench", "cores", "--milliseconds", "1", "--json"]);
    check("bench-cores", &cores);
}

#[test]
fn what_the_modem_tells_keeps_its_schemas() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (text, sent, air, got) = (at("text"), at("sent.cf32"), at("air.cf32"), at("got"));
    fs::write(&text, "a few words").unwrap();
    let tx = ["modem", "tx", "--json", "--input", &text, "--output", &sent];
    check("modem-tx", &karoo_ok(tx));
    let channel = [
        "modem", "channel", "--json", "--input", &sent, "--output", &air,
    ];
    check("modem-channel", &karoo_ok(channel));
    let rx = ["modem", "rx", "--json", "--input", &air, "--output", &got];
    let received = karoo_ok(rx);
    check("modem-rx", &received);
    let received: Value = serde_json::from_str(&received).unwrap();
    assert_eq!(received["frames"].as_array().unwrap().len(), 1);
    let packets = at("packets.pcap");
    let tx = ["modem", "tx", "--json", "--input", &text, "--output"];
    let tx = tx.into_iter().chain([&*packets, "--sample-rate", "1M"]);
    check("modem-tx", &karoo_ok(tx));
    check(
        "modem-rx",
        &karoo_ok(["modem", "rx", "--json", "--correct", "--input", &packets]),
    );
    let link = [
        "modem", "link", "--json", "--input", &text, "--output", &got,
    ];
    check("modem-link", &karoo_ok(link));
    let ber = [
        "modem", "ber", "--json", "--mod", "bpsk", "--eb-n0", "6", "--errors", "1",
    ];
    check("modem-ber", &karoo_ok(ber));
    for (what, rest) in [
        ("tx", vec!["--rounds", "1", "--seconds", "0.01"]),
        (
            "rx",
            vec!["--rounds", "1", "--seconds", "0.01", "--mod", "bpsk"],
        ),
        (
            "latency",
            vec!["--seconds", "0.08", "--rate", "10M", "--block", "4096"],
        ),
        ("loop", vec!["--seconds", "0.01", "--telemetry"]),
    ] {
        let bench = ["modem", "bench", what, "--json"];
        let name = format!("modem-bench-{what}");
        check(&name, &karoo_ok(bench.into_iter().chain(rest)));
    }
}
