//! What commands leave, and say, where there is no room for what they write.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::support::{host, refused};

#[test]
fn what_cannot_be_printed_is_told_also_where_a_command_fails() {
    let host = host::lay_out(&host::record("milan"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_karoo"));
    command.args(["tune", "check", "--json", "--root"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let command = command.arg(host.path()).stdout(Stdio::from(full));
    let output = command.output().unwrap();
    for why in ["are not as they should be", "cannot print: No space left"] {
        refused(&output, 1, why);
    }
}
