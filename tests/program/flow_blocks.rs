//! Streams of blocks at the ends of `karoo flow run`: as the structures of programs that Laminar
//! generates, which these tests lay out by hand.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Child;
use std::thread;

use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::{TempDir, tempdir};

use super::flow::graph;
use crate::modem_mistakes::{interrupt, started};
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

/// A program that ends with the test, whatever becomes of that.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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
    let input = format!("x,z={blocks},planar=8");
    // It would wait for ever for a reader that does not come.
    let mut first = Started(started(&[&run[..], &["-i", &input, "-o", &to]].concat()));
    let output = format!("v,w={},planar=8", room.at("out"));
    karoo_ok(run.iter().chain(&["-i", &from, "-o", &output]));
    assert!(first.0.wait().unwrap().success());
    assert_eq!(fs::read(room.at("out")).unwrap(), numbers(4));
}

/// Bytes in a pipe that nobody has read.
fn unread(pipe: &File) -> libc::c_int {
    let mut bytes = 0;
    // SAFETY: a descriptor that is open, and a number of this function's own that is written.
    let done = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    assert_eq!(done, 0);
    bytes
}

#[test]
fn whole_elements_come_out_at_a_signal() {
    let room = Room::new();
    let both = room.with("both.toml", BOTH);
    let pipe = room.at("pipe");
    mkfifo(Path::new(&pipe), Mode::S_IRWXU).unwrap();
    let (input, output) = (format!("x,z={pipe},planar=4"), room.at("out"));
    let to = format!("v,w={output},planar=4");
    let run = ["flow", "run", &both, "--no-pin", "-i", &input, "-o", &to];
    let mut child = Started(started(&run));
    // Both ways, so that it waits for nobody.
    let both_ways = File::options().read(true).write(true).open(&pipe);
    let mut writer = both_ways.unwrap();
    // float x[4], z_re[4], z_im[4]; four more bytes are no element.
    let element = |e: usize| ticks(e).chain(ticks(e)).chain(ticks(e));
    let some = bytes((0..10).flat_map(element).chain([0]));
    writer.write_all(&some).unwrap();
    while unread(&writer) > 0 {
        assert!(child.0.try_wait().unwrap().is_none(), "it has ended");
        thread::yield_now();
    }
    interrupt(&child.0);
    assert!(child.0.wait().unwrap().success());
    let element = |e: usize| {
        let v = ticks(e).map(|n| 2 * n);
        let w = [4 * e, 4 * e + 2];
        v.chain(w).chain(w)
    };
    let wanted = bytes((0..10).flat_map(element));
    assert_eq!(fs::read(&output).unwrap(), wanted);
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
    for (input, wanted) in [
        ("x=udp:127.0.0.1:5004,planar=4", "planar= is not for data"),
        ("x,z=udp:127.0.0.1:5004", "give each port an address"),
        ("x,z=udp:127.0.0.1:5004,planar=4", "give each port an addr"),
        ("x,q=a,planar=4", "no port `q`; write PORT=ADDRESS with"),
        ("x,q=a,planar=4", "or PORT,PORT=ADDRESS,planar=SAMPLES"),
        ("x=shm:a,plana=4", "there are size=, idle= and planar="),
        ("x=,planar=4", "--input x=…: no address"),
    ] {
        refused_with(input, &output, 2, wanted);
    }
    let taken = input(",planar=4");
    // A block of standard input, and an option where an address is missing.
    let filter = graph("filter.toml");
    let one = ["flow", "run", &filter, "-i"];
    refused(&karoo(one.iter().chain(&["-,planar=0"])), 2, "`planar=0`");
    let option = karoo(one.iter().chain(&["-o", "--no-pin"]));
    refused(&option, 2, "it looks like an option");
    let again = [&run[..], &["-i", &taken, "-i", "z=a"]].concat();
    refused(&karoo(&again), 2, "the port z has an address already");
    assert_eq!(fs::read(&keep).unwrap(), b"precious");
    // The whole elements of a stream that ends within one come out.
    let wanted = format!("x,z={blocks}: the stream ends 4 bytes into an element of 48");
    refused_with(&input(",planar=4"), &output, 1, &wanted);
    assert_eq!(
        fs::read(&keep).unwrap(),
        bytes([0, 2, 4, 6, 24, 26, 28, 30])
    );
}
