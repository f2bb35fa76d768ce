//! The house: every room is in the map of `src/lib.rs`, imports point down, `unsafe` is where the
//! map says, comments are not wide. The crate of flow is a house of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Floor of each room, from the table at the head of a `lib.rs`. Private rooms have no links there.
fn floors(map: &str) -> BTreeMap<String, u32> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("//! | ")?.split(" | ");
        let floor = cells.next()?.parse().ok()?;
        let room = cells.next()?.trim_matches(['[', ']', '`']);
        Some((room.trim_start_matches("mod@").to_owned(), floor))
    };
    map.lines().filter_map(row).collect()
}

/// Rooms that a library has.
fn rooms(map: &str) -> Vec<String> {
    let module = |line: &str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        Some(line.strip_prefix("mod ")?.strip_suffix(';')?.to_owned())
    };
    map.lines().filter_map(module).collect()
}

/// Sources of a library, and how many imports between rooms it has at least.
const HOUSES: [(&str, usize); 2] = [("src", 300), ("crates/flow/src", 200)];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Rooms that a source names, without its comments and its tests.
fn imports(source: &str) -> Vec<String> {
    let (source, _) = source
        .split_once("#[cfg(test)]\nmod tests {")
        .unwrap_or((source, ""));
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    let source: Vec<_> = source.lines().map(code).collect();
    let source = source.join(" ");
    let mut found = Vec::new();
    for path in source.split("crate::").skip(1) {
        let paths = match path.strip_prefix('{') {
            Some(list) => list.split(';').next().unwrap_or_default().split(','),
            None => path.split(','),
        };
        let several = if path.starts_with('{') { usize::MAX } else { 1 };
        for path in paths.take(several) {
            let name = path.trim_start();
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            found.push(name[..end.unwrap_or(name.len())].to_owned());
        }
    }
    found
}

#[test]
fn the_map_has_every_room_and_no_other() {
    for (house, _) in HOUSES {
        let map = fs::read_to_string(Path::new(ROOT).join(house).join("lib.rs")).unwrap();
        let (floors, mut rooms) = (floors(&map), rooms(&map));
        rooms.sort();
        assert_eq!(floors.into_keys().collect::<Vec<_>>(), rooms, "{house}");
        assert!(rooms.len() > 15, "{house}");
    }
}

/// Imports of a library between rooms: how many, and those that do not point down.
fn climbs(house: &Path) -> (usize, Vec<String>) {
    let floors = floors(&fs::read_to_string(house.join("lib.rs")).unwrap());
    let mut files = Vec::new();
    sources(house, &mut files);
    let mut climbs = Vec::new();
    let mut seen = 0;
    for file in files {
        let path = file.strip_prefix(house).unwrap();
        let room = path.iter().next().unwrap().to_str().unwrap();
        let room = room.trim_end_matches(".rs");
        let is_test = path.iter().any(|part| {
            let part = part.to_str().unwrap();
            part == "tests" || part.ends_with("tests.rs")
        });
        let Some(own) = floors.get(room).filter(|_| !is_test) else {
            continue;
        };
        for other in imports(&fs::read_to_string(&file).unwrap()) {
            // Macros of the library are named by its root.
            let Some(floor) = floors.get(&other) else {
                continue;
            };
            seen += 1;
            if other != room && floor >= own {
                climbs.push(format!("{}: crate::{other}", path.display()));
            }
        }
    }
    (seen, climbs)
}

#[test]
fn imports_point_down() {
    for (house, least) in HOUSES {
        let (seen, climbs) = climbs(&Path::new(ROOT).join(house));
        assert!(seen > least, "{house}: {seen}");
        assert!(climbs.is_empty(), "{house}: {climbs:#?}");
    }
}

/// Modules in which a source allows `unsafe`; `module` is the source's own.
fn allows_unsafe(module: &str, source: &str) -> Vec<String> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        if *line == "#![allow(unsafe_code)]" {
            found.push(module.to_owned());
        } else if *line == "#[allow(unsafe_code)]" {
            let item = lines[number..].iter().find(|line| !line.starts_with('#'));
            let name = item.and_then(|item| item.split_once("mod "));
            found.push(match name {
                Some((_, name)) => format!("{module}::{}", name.trim_end_matches([';', '{', ' '])),
                None => module.to_owned(),
            });
        }
    }
    found
}

#[test]
fn the_map_has_every_place_of_unsafe_and_no_other() {
    let map = fs::read_to_string(Path::new(ROOT).join("src/lib.rs")).unwrap();
    let (_, list) = map.split_once("`unsafe` lives in ").unwrap();
    let (list, _) = list.split_once("nowhere else").unwrap();
    let listed: Vec<_> = list.split('`').skip(1).step_by(2).collect();
    let mut allowed = Vec::new();
    let mut roots = vec![(String::new(), Path::new(ROOT).join("src"))];
    for entry in fs::read_dir(Path::new(ROOT).join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let name = match name.as_str() {
            "flow" | "modem" => format!("karoo_{name}"),
            _ => name,
        };
        roots.push((name, folder.join("src")));
    }
    for (name, root) in roots {
        let mut files = Vec::new();
        sources(&root, &mut files);
        for file in files {
            let path = file.strip_prefix(&root).unwrap().with_extension("");
            let parts = path.iter().map(|part| part.to_str().unwrap());
            let parts = parts.filter(|part| !["lib", "mod"].contains(part));
            let module = [name.as_str()].into_iter().chain(parts);
            let module: Vec<_> = module.filter(|part| !part.is_empty()).collect();
            let source = fs::read_to_string(&file).unwrap();
            allowed.extend(allows_unsafe(&module.join("::"), &source));
        }
    }
    let covers = |listed: &str, module: &str| {
        let rest = module.strip_prefix(listed);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    for module in &allowed {
        assert!(listed.iter().any(|name| covers(name, module)), "{module}");
    }
    for name in &listed {
        let used = allowed.iter().any(|module| covers(name, module));
        assert!(used, "{name} has no unsafe code");
    }
    assert!(listed.len() > 15 && allowed.len() >= listed.len());
}

#[test]
fn lines_of_comments_have_100_columns() {
    let mut files = Vec::new();
    for folder in ["src", "crates", "tests", "benches", "examples", "fuzz"] {
        sources(&Path::new(ROOT).join(folder), &mut files);
    }
    let mut long = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > 100 {
                long.push(format!("{}:{}", file.display(), number + 1));
            }
        }
    }
    assert!(files.len() > 400, "{}", files.len());
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn imports_are_found_wherever_they_stand() {
    let source = "use crate::{units, net::frame};\nfn f() { crate::cli::run() }\n\
                  // crate::comment\n#[cfg(test)]\nmod tests { use crate::late; }\n";
    let mut found = imports(source);
    found.sort();
    assert_eq!(found, ["cli", "net", "units"]);
}
