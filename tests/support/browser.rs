//! A browser that looks at the page of a running command.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the binary with `--http`, has `judge` of `tests/judges` look at its page, and ends it by
/// SIGINT. Insists that all of them end well. Behind the judge's name may be words for it.
pub fn look(judge: &str, args: &[&str]) {
    let page = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = page.local_addr().unwrap().port();
    drop(page);
    let mut child = Command::new(env!("CARGO_BIN_EXE_karoo"))
        .args(args)
        .args(["--http", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let judges = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges");
    let mut words = judge.split(' ');
    let look = Command::new("python3")
        .arg(judges.join(words.next().unwrap_or_default()))
        .arg(format!("http://127.0.0.1:{port}/"))
        .args(words)
        .output();
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    let ended = child.wait().unwrap();
    let look = look.expect("python3 starts");
    let text = String::from_utf8_lossy(&look.stderr);
    assert!(
        look.status.success(),
        "{text}\n(needs Debian's chromium and chromium-driver)"
    );
    assert!(killed.unwrap().success() && ended.success());
}
