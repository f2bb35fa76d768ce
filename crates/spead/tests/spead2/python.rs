//! Running the Python scripts beside these files.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

/// A script that runs. It is ended when this is dropped.
pub struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Script {
    /// Starts a script with the Python that `KAROO_PYTHON` names, else with `python3`, which needs
    /// spead2 and numpy.
    pub fn start(name: &str, arguments: &[&str]) -> Option<Self> {
        let python = std::env::var("KAROO_PYTHON").unwrap_or_else(|_| "python3".into());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/spead2");
        let mut child = Command::new(&python)
            .arg(folder.join(name))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{python} starts: {error}"));
        Some(Self {
            input: child.stdin.take().expect("a pipe"),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
        })
    }

    /// Waits for a line of the script's output, which is JSON.
    pub fn line(&mut self) -> Value {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).expect("text");
        assert!(
            read > 0,
            "the script failed: see above; it needs spead2 (pip install spead2)"
        );
        serde_json::from_str(&line).expect("JSON")
    }

    /// Lets the script go on.
    pub fn go_on(&mut self) {
        writeln!(self.input).expect("the script reads");
    }

    /// Waits for the script's end, and insists on success.
    pub fn end(mut self) {
        assert!(self.child.wait().expect("a child").success(), "see above");
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // Fails if the script has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
