//! The committed corpora of the fuzz targets, run through the targets' bodies.

use std::fs;
use std::path::Path;

#[path = "../../fuzz/bodies/capture.rs"]
mod capture_body;
#[path = "../../fuzz/bodies/igmp.rs"]
mod igmp_body;
#[path = "../../fuzz/bodies/katcp_lines.rs"]
mod katcp_lines_body;
#[path = "../../crates/spead/tests/hostile/heap.rs"]
mod spead_heap;
#[path = "../../crates/spead/tests/hostile/packet.rs"]
mod spead_packet;
#[path = "../../fuzz/bodies/vita.rs"]
mod vita_body;

fn run(corpus: &str, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/fuzz")
        .join(corpus);
    let mut inputs = 0;
    for entry in fs::read_dir(folder).expect("the corpus is committed") {
        body(&fs::read(entry.expect("readable folder").path()).expect("readable input"));
        inputs += 1;
    }
    assert!(inputs >= 5, "corpus {corpus} has only {inputs} inputs");
}

#[test]
fn spead_packets() {
    run("spead_packet", spead_packet::read);
}

#[test]
fn spead_heaps() {
    run("spead_heap", spead_heap::read);
}

#[test]
fn captures() {
    run("capture", |bytes| {
        capture_body::capture(bytes, spead_packet::read);
    });
}

#[test]
fn katcp_lines() {
    run("katcp_lines", katcp_lines_body::lines);
}

#[test]
fn igmp() {
    run("igmp", igmp_body::igmp);
}

#[test]
fn vita() {
    run("vita", vita_body::vita);
}
