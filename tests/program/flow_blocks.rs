//! Streams of blocks at the ends of `karoo flow run`: as the structures of programs that Laminar
//! generates, which these tests lay out by hand.

use std::fs;
use std::ops::Range;
use std::thread;

use tempfile::{TempDir, tempdir};

use super::flow::graph;
use crate::support::{karoo, karoo_ok, refused};

/// A real and a complex input, each with its output.
const BOTH: &str = r#"
name = "both"

[[node]]
path = "x"
kind = "input"
of = "f32"

[[node]]
path = "z"
kind = "input"
of = "complex f32"

[[node]]
path = "twice"
kind = "gain"
gain = 2.0
from = ["x"]

[[node]]
path = "half"
kind = "down"
by = 2
from = ["z"]

[[node]]
path = "v"
kind = "output"
from = ["twice"]

[[node]]
path = "w"
kind = "output"
from = ["half"]
"#;

struct Room(TempDir);

impl Room {
    fn new() -> Room {
        Room(tempdir().unwrap())
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn with(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.at(name), bytes).unwrap();
        self.at(name)
    }
}

fn bytes(numbers: impl IntoIterator<Item = usize>) -> Vec<u8> {
    let number = |number: usize| (number as f32).to_le_bytes();
    numbers.into_iter().flat_map(number).collect()
}

/// The ticks of an element of four.
fn ticks(element: usize) -> Range<usize> {
    4 * element..4 * element + 4
}

/// Pairs of numbers by blocks: first numbers of so many pairs, then second ones. The last block is
/// filled up with zeros.
fn by_blocks(pairs: &[u8], samples: usize) -> Vec<u8> {
    let mut pairs = pairs.to_vec();
    pairs.resize(pairs.len().next_multiple_of(8 * samples), 0);
    let block = |block: &[u8]| {
        let part = |part: usize| block.chunks(8).flat_map(move |pair| &pair[part..part + 4]);
        part(0).chain(part(4)).copied().collect::<Vec<u8>>()
    };
    pairs.chunks(8 * samples).flat_map(block).collect()
}

#[test]
fn complex_samples_come_and_go_in_blocks() {
    let room = Room::new();
    let samples = bytes((0..2 * 5000).map(|n| n * n % 1000));
    let run = |input: &str, output: &str| {
        let filter = graph("filter.toml");
        karoo_ok([
            "flow", "run", &filter, "--no-pin", "-i", input, "-o", output,
        ]);
    };
    let plain = room.with("x", &samples);
    run(&plain, &room.at("y"));
    let wanted = fs::read(room.at("y")).unwrap();
    assert_eq!(wanted.len(), 8 * 2500);
    let blocks = room.with("blocks", by_blocks(&samples, 8));
    // 2500 samples are 62 blocks and a half.
    let (input, output) = (format!("{blocks},planar=8"), room.at("planes"));
    run(&input, &format!("y={output},planar=40"));
    assert_eq!(fs::read(&output).unwrap(), by_blocks(&wanted, 40));
    // A block of one sample is a sample.
    run(&format!("{plain},planar=1"), &room.at("again"));
    assert_eq!(fs::read(room.at("again")).unwrap(), wanted);
}

#[test]
fn ports_that_share_an_address_have_a_block_each() {
    let room = Room::new();
    let both = room.with("both.toml", BOTH);
    // float z_re[4], z_im[4], x[4]
    let element = |e: usize| {
        let z = ticks(e).map(|n| 100 + n).chain(ticks(e).map(|n| 200 + n));
        z.chain(ticks(e))
    };
    let blocks = room.with("blocks", bytes((0..3).flat_map(element)));
    let (input, output) = (format!("z,x={blocks},planar=4"), room.at("out"));
    let run = ["flow", "run", &both, "--no-pin"];
    let to = format!("v,w={output},planar=4");
    karoo_ok(run.iter().chain(&["-i", &input, "-o", &to]));
    // float v[4], w_re[2], w_im[2]
    let element = |e: usize| {
        let v = ticks(e).map(|n| 2 * n);
        v.chain([100 + 4 * e, 102 + 4 * e, 200 + 4 * e, 202 + 4 * e])
    };
    assert_eq!(fs::read(&output).unwrap(), bytes((0..3).flat_map(element)));
    // One of the outputs alone, sample by sample.
    let alone = format!("w={}", room.at("w"));
    karoo_ok(run.iter().chain(&["-i", &input, "-o", &alone]));
    let pairs = (0..12).step_by(2).flat_map(|n| [100 + n, 200 + n]);
    assert_eq!(fs::read(room.at("w")).unwrap(), bytes(pairs));
}

#[test]
fn two_runs_pass_blocks_of_several_ports_through_shared_memory() {
    let room = Room::new();
    let text = BOTH.replace("kind = \"down\"\nby = 2", "kind = \"gain\"\ngain = 2.0");
    let both = room.with("both.toml", &text);
    let numbers = |factor: usize| bytes((0..3 * 8 * 500).map(move |n| factor * n));
    let blocks = room.with("blocks", numbers(1));
    let memory = format!("shm:karoo-blocks-{},planar=8,size=4096", std::process::id());
    let (to, from) = (format!("v,w={memory}"), format!("x,z={memory}"));
    let run = ["flow", "run", &both, "--no-pin"];
    thread::scope(|scope| {
        let input = format!("x,z={blocks},planar=8");
        let first = [&run[..], &["-i", &input, "-o", &to]].concat();
        let first: Vec<String> = first.into_iter().map(str::to_owned).collect();
        scope.spawn(move || karoo_ok(first));
        let output = format!("v,w={},planar=8", room.at("out"));
        karoo_ok(run.iter().chain(&["-i", &from, "-o", &output]));
    });
    assert_eq!(fs::read(room.at("out")).unwrap(), numbers(4));
}

#[test]
fn blocks_that_cannot_be_are_refused() {
    let room = Room::new();
    let both = room.with("both.toml", BOTH);
    let blocks = room.with("blocks", bytes(0..12 * 2 + 1));
    let keep = room.with("keep", "precious");
    let run = ["flow", "run", &both, "--no-pin"];
    let output = format!("v={keep}");
    let refused_with = |input: &str, output: &str, code: i32, wanted: &str| {
        let ends = ["-i", input, "-o", output];
        refused(&karoo(run.iter().chain(&ends)), code, wanted);
    };
    let input = |rest: &str| format!("x,z={blocks}{rest}");
    for (rest, wanted) in [
        ("", "--input x,z=…: several ports have one address where"),
        (",planar=0", "`planar=0` is not a whole number of samples"),
        (",planar=", "`planar=` is not a whole number of samples"),
        (",planar=4,planar=4", "planar= is there twice"),
        (",planar=99999999", "give less"),
    ] {
        refused_with(&input(rest), &output, 2, wanted);
    }
    let both_outputs = format!("v,w={keep},planar=3");
    refused_with(&input(",planar=4"), &both_outputs, 2, "a multiple of 2");
    let twice = format!("x,x={blocks},planar=4");
    refused_with(&twice, &output, 2, "name each once");
    let datagrams = "x,z=udp:127.0.0.1:5004,planar=4";
    refused_with(datagrams, &output, 2, "planar= is not for datagrams");
    assert_eq!(fs::read(&keep).unwrap(), b"precious");
    // The whole elements of a stream that ends within one come out.
    let wanted = "ends 4 bytes into an element of 48";
    refused_with(&input(",planar=4"), &output, 1, wanted);
    assert_eq!(
        fs::read(&keep).unwrap(),
        bytes([0, 2, 4, 6, 24, 26, 28, 30])
    );
}
