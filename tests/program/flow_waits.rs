//! What `karoo flow run` and `karoo modem tx` tell of who waits for a peer: on the page, in metrics
//! and in the log.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::flow::graph;
use crate::modem_mistakes::{interrupt, listens};
use crate::support::{json, karoo, refused};

/// A port that nobody has.
fn port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

/// What a page of this port answers; whoever is to serve it may not have begun.
fn answer(port: u16, path: &str) -> String {
    let begin = Instant::now();
    let mut page = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(page) => break page,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
        }
        thread::yield_now();
    };
    write!(
        page,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    page.read_to_string(&mut answer).unwrap();
    answer
}

/// A program that would wait for ever. It ends with the test, whatever becomes of that.
struct Started(Option<Child>);

impl Started {
    fn program(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    /// Interrupts it, and waits for its end.
    fn interrupted(mut self) -> Output {
        interrupt(self.program());
        let program = self.0.take().unwrap();
        program.wait_with_output().unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut program) = self.0.take() {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

fn started(args: &[&str]) -> Started {
    let program = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(args)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Started(Some(program.unwrap()))
}

/// Waits until the log has a line with this text.
fn says(started: &mut Started, text: &str) {
    let mut log = BufReader::new(started.program().stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains(text) {
        assert!(log.read_line(&mut said).unwrap() > 0, "{said}");
    }
    // What else it says is not to fill the pipe.
    thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
}

#[test]
fn a_page_says_which_input_waits_for_its_peer() {
    let (input, page) = (port(), port());
    let address = format!("tcp-listen:127.0.0.1:{input}");
    let from = format!("x={address}");
    let http = page.to_string();
    let filter = graph("filter.toml");
    let mut child = started(&[
        "flow", "run", &filter, "--no-pin", "-i", &from, "--http", &http,
    ]);
    let waits = format!("x waits for a peer that connects to {address}");
    says(&mut child, &waits);
    let document = answer(page, "/live.json");
    // Its parts have their lengths around them.
    let document = json(&document[document.find('{').unwrap()..=document.rfind('}').unwrap()]);
    let panels = document["panels"].as_array().unwrap();
    let verdict = panels
        .iter()
        .find(|panel| panel["kind"] == "verdict")
        .unwrap();
    assert_eq!(verdict["text"], waits, "{verdict}");
    let metrics = answer(page, "/metrics");
    assert!(
        metrics.contains("flow_waiting_for_peer{port=\"x\"} 1"),
        "{metrics}"
    );
    let output = child.interrupted();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// The reader is refused for its size, and the writer says which size it waits for.
#[test]
fn shared_memory_of_two_sizes_is_told_at_both_ends() {
    let name = format!("shm:karoo-sizes-{}", std::process::id());
    let (filter, sized) = (graph("filter.toml"), format!("{name},size=1024"));
    let waits = format!("waits for a reader of {sized}, which must say the same size");
    let flow = [
        "flow",
        "run",
        &filter,
        "--no-pin",
        "-i",
        "/dev/zero",
        "-o",
        &sized,
    ];
    let modem = ["modem", "tx", "--input", "/dev/zero", "--output", &sized];
    for args in [&flow[..], &modem] {
        let mut child = started(args);
        says(&mut child, &waits);
        let reader = karoo(["flow", "run", &filter, "--no-pin", "-i", &name]);
        refused(&reader, 1, "give both ends the same size=");
        listens(child.program());
        let output = child.interrupted();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
    }
}
