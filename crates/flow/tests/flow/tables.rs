//! What is told of TOML that is wrong, and what is not.

use karoo_flow::{Graph, Registry};

#[test]
fn what_only_follows_from_a_mistake_in_toml_is_not_told() {
    let text = "name = 'wrong'
[[scope]]
path = 'no/such'
[[node]]
path = 'x'
kind = 'input'
of = 'f32'
[[node]]
path = 'g'
kind = 'gain'
gain = [1, 'a']
from = ['x']
[[node]]
path = 'h'
kind = 'gain'
gain = '1 2'
from = ['g']
[[node]]
path = 'no/such/p'
kind = 'pass'
from = ['h']
[[node]]
path = 'y'
kind = 'output'
from = ['no/such/p']
";
    let read = |text: &str| Graph::from_toml(text, "w.toml", &Registry::standard()).unwrap_err();
    let problems = read(text);
    let lines: Vec<&str> = problems.0.iter().map(|problem| &*problem.path).collect();
    assert_eq!(
        lines,
        ["w.toml:2: no/such", "w.toml:8: g", "w.toml:13: h"],
        "{problems}"
    );
    // A name with a colon is wrong itself, not what reads it.
    let text = "name = 'colon'
[[node]]
path = 'a:2'
kind = 'input'
of = 'f32'
[[node]]
path = 'y'
kind = 'output'
from = ['a:2']
";
    let problems = read(text);
    assert_eq!(problems.0.len(), 1, "{problems}");
    let told = problems.to_string();
    assert!(
        told.starts_with("w.toml:2: a:2: \"a:2\" is no name"),
        "{told}"
    );
}

#[test]
fn the_partition_of_nodes_without_a_mark_is_no_mark() {
    let text =
        |partition: u32| format!("name = 'a'\n[[scope]]\npath = 's'\npartition = {partition}\n");
    let read = |partition: u32| Graph::from_toml(&text(partition), "a.toml", &Registry::standard());
    assert!(read(u32::MAX - 1).is_ok());
    let told = read(u32::MAX).unwrap_err().to_string();
    let wanted = "a.toml:2: s: partition 4294967295 is that of nodes without a mark: use 0 to";
    assert!(told.starts_with(wanted), "{told}");
}

#[test]
fn a_sub_block_has_a_sample() {
    let text = |most: u32| format!("name = 'a'\n[[scope]]\npath = 's'\nsub_block = {most}\n");
    let read = |most: u32| Graph::from_toml(&text(most), "a.toml", &Registry::standard());
    assert!(read(1).is_ok());
    let told = read(0).unwrap_err().to_string();
    let wanted = "a.toml:2: s: a sub_block is a whole number above 0";
    assert!(told.starts_with(wanted), "{told}");
}
