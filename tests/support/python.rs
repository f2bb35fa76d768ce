//! Running the scripts of `tests/judges`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs a script, insists on success, and reads the JSON that it prints.
pub fn python(script: &str, args: &[&str]) -> Value {
    let python = std::env::var("KAROO_PYTHON").unwrap_or_else(|_| "python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/judges")
        .join(script);
    let output = Command::new(&python)
        .arg(script)
        .args(args)
        .output()
        .expect("python starts");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        !stderr.contains("ModuleNotFoundError"),
        "{python} lacks the packages of scripts/requirements.txt: run scripts/test\n{stderr}"
    );
    assert!(output.status.success(), "{stdout}\n{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}
