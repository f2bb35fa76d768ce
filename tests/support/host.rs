//! Recorded hosts: `tests/data/hosts/NAME.host` as folders with `proc` and `sys`.
//!
//! A line is `path = text`, with `\n` and `\t` for their characters, or `path -> where a link
//! leads`. A path with `[0-7]` stands for eight, in whose texts `{n}`, `{n+8}` and `{n-8}` are the
//! number. `path =x 256 06:1000` is a file of 256 bytes, zero but for those from 0x06 on. `#`
//! begins a comment.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use host::topology::CpuList;
use tempfile::TempDir;

use super::data;

/// The text of a recorded host.
pub fn record(name: &str) -> String {
    fs::read_to_string(data(&format!("hosts/{name}.host"))).unwrap()
}

/// Lays a recorded host out.
pub fn lay_out(record: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lines = record
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    for line in lines {
        let equals = line.split_once(" =");
        let Some((path, text)) = equals else {
            let (path, target) = line.split_once(" -> ").unwrap_or_else(|| panic!("{line}"));
            let path = prepare(folder.path(), path);
            symlink(target, path).unwrap();
            continue;
        };
        let text = text.strip_prefix(' ').unwrap_or(text);
        match path.split_once('[') {
            None => write(folder.path(), path, text),
            Some((before, rest)) => {
                let (range, after) = rest.split_once(']').unwrap();
                for n in range.parse::<CpuList>().unwrap().iter() {
                    let path = format!("{before}{n}{after}");
                    write(folder.path(), &path, &with_number(text, n));
                }
            }
        }
    }
    folder
}

fn with_number(text: &str, n: usize) -> String {
    let mut parts = text.split("{n");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let (offset, rest) = part.split_once('}').unwrap();
        let offset: isize = if offset.is_empty() {
            0
        } else {
            offset.parse().unwrap()
        };
        out += &format!("{}{rest}", n as isize + offset);
    }
    out
}

fn write(folder: &Path, path: &str, text: &str) {
    let path = prepare(folder, path);
    if let Some(sparse) = text.strip_prefix("x ") {
        return fs::write(path, bytes(sparse)).unwrap();
    }
    let text = text.replace("\\n", "\n").replace("\\t", "\t");
    fs::write(path, text + "\n").unwrap();
}

fn prepare(folder: &Path, path: &str) -> std::path::PathBuf {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

fn bytes(sparse: &str) -> Vec<u8> {
    let (size, pieces) = sparse.split_once(' ').unwrap();
    let mut bytes = vec![0; size.parse().unwrap()];
    let hex = |text: &str| u8::from_str_radix(text, 16).unwrap();
    for piece in pieces.split(' ') {
        let (at, values) = piece.split_once(':').unwrap();
        for (index, pair) in values.as_bytes().chunks(2).enumerate() {
            bytes[usize::from(hex(at)) + index] = hex(std::str::from_utf8(pair).unwrap());
        }
    }
    bytes
}
