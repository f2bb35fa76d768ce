//! `karoo top` on a terminal.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a terminal sends when a program gives the screen back.
const SCREEN_GIVEN_BACK: &[u8] = b"\x1b[?1049l";

/// Ends with the test, whatever becomes of it.
struct Terminal(Child);

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// A table of one engine that takes connections and never says anything, on a terminal.
struct Top {
    terminal: Terminal,
    keys: ChildStdin,
    process: u32,
    /// All that it wrote, once it has ended.
    screen: Receiver<Vec<u8>>,
    _silent: TcpListener,
}

impl Top {
    fn start() -> Self {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let process = folder.path().join("process");
        let karoo = env!("CARGO_BIN_EXE_karoo");
        let command = format!(
            "stty columns 100 rows 20; echo $$ > {}; exec {karoo} top {address}",
            process.display()
        );
        // A terminal, by util-linux.
        let script = Command::new("script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script, of util-linux");
        let mut terminal = Terminal(script);
        let mut output = terminal.0.stdout.take().unwrap();
        let (heard, hears) = mpsc::channel();
        let (ended, screen) = mpsc::channel();
        thread::spawn(move || {
            let (mut all, mut bytes) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                all.extend_from_slice(&bytes[..count]);
                if String::from_utf8_lossy(&all).contains("no answer") {
                    let _ = heard.send(());
                }
            }
            let _ = ended.send(all);
        });
        hears
            .recv_timeout(PATIENCE)
            .expect("the engine does not answer");
        let keys = terminal.0.stdin.take().unwrap();
        let process = fs::read_to_string(process).unwrap();
        Self {
            terminal,
            keys,
            process: process.trim().parse().unwrap(),
            screen,
            _silent: silent,
        }
    }

    /// What it wrote until it ended, and whether it ended well.
    fn end(mut self) -> (Vec<u8>, bool) {
        let screen = self.screen.recv_timeout(PATIENCE).expect("it ends");
        (screen, self.terminal.0.wait().unwrap().success())
    }
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// Whoever watches engines of which one hangs can still end the table.
#[test]
fn a_key_ends_the_table_while_an_engine_does_not_answer() {
    let mut top = Top::start();
    top.keys.write_all(b"q").unwrap();
    let (screen, well) = top.end();
    assert!(well && contains(&screen, SCREEN_GIVEN_BACK));
}

#[test]
fn a_signal_ends_the_table_and_gives_the_screen_back() {
    let top = Top::start();
    let told = Command::new("kill").arg(top.process.to_string()).status();
    assert!(told.unwrap().success());
    let (screen, well) = top.end();
    assert!(well && contains(&screen, SCREEN_GIVEN_BACK));
}
