//! Running the Python scripts beside these files.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A script that runs. It is ended when this is dropped.
pub struct Script {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Script {
    /// Starts a script.
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        let python = std::env::var("KAROO_PYTHON").unwrap_or_else(|_| "python3".into());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/aiokatcp");
        let mut child = Command::new(&python)
            .arg(folder.join(name))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{python} starts: {error}"));
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, output }
    }

    /// Waits for a line of the script's output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        assert!(read.expect("text") > 0, "the script failed: see above");
        line.trim_end().to_owned()
    }

    /// Waits for the script's end, insists on success, and returns the rest of its output.
    pub fn end(mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("text");
        let status = self.child.wait().expect("a child");
        assert!(
            status.success(),
            "the script failed: see above; it needs aiokatcp (pip install aiokatcp)\n{rest}"
        );
        rest
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Fails if the script has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
