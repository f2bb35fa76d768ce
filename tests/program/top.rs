//! `karoo top` on a terminal.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Ends with the test, whatever becomes of it.
struct Terminal(Child);

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// Whoever watches engines of which one hangs can still end the table.
#[test]
fn a_key_ends_the_table_while_an_engine_does_not_answer() {
    // It takes connections, and never says anything.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let karoo = env!("CARGO_BIN_EXE_karoo");
    let command = format!("stty columns 100 rows 20; exec {karoo} top {address}");
    // A terminal, by util-linux.
    let script = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script, of util-linux");
    let mut script = Terminal(script);
    let mut screen = script.0.stdout.take().unwrap();
    let (heard, hears) = mpsc::channel();
    let reader = thread::spawn(move || {
        let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            all.extend_from_slice(&bytes[..count]);
            if String::from_utf8_lossy(&all).contains("no answer") {
                let _ = heard.send(());
            }
        }
    });
    let patience = Duration::from_secs(60);
    hears
        .recv_timeout(patience)
        .expect("the engine does not answer");
    script.0.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    let (ended, ends) = mpsc::channel();
    thread::spawn(move || {
        reader.join().unwrap();
        let _ = ended.send(());
    });
    ends.recv_timeout(patience).expect("q ends the table");
    assert!(script.0.wait().unwrap().success());
}
