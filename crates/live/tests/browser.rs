//! The page in a browser without a screen, on a desktop and on a phone.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_demo_page_shows_a_tone_that_moves_and_a_fault_that_ends() {
    let tests = std::env::current_exe().unwrap();
    let demo = tests.with_file_name("../examples/demo");
    let fault = std::env::temp_dir().join(format!("karoo-live-{}", std::process::id()));
    let mut demo = Command::new(demo)
        .arg("127.0.0.1:0")
        .arg(&fault)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the example is built");
    let mut address = String::new();
    let stdout = demo.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut address).unwrap();
    let look = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/look.py");
    // It ends the demo by itself, and looks at the page that is left.
    let look = Command::new("python3")
        .arg(look)
        .arg(format!("http://{}/", address.trim()))
        .arg(&fault)
        .arg(demo.id().to_string())
        .output();
    let _ = demo.kill();
    demo.wait().unwrap();
    let look = look.expect("python3 starts");
    let text = String::from_utf8_lossy(&look.stderr);
    assert!(
        look.status.success(),
        "{text}\n(needs Debian's chromium and chromium-driver)"
    );
}
