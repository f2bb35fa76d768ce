//! spead2's heaps, received by this crate.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;

use spead::packet::MAX_PACKET;
use spead::{DescriptorTable, ElementValue, Heap, HeapAssembler, Item, ItemArray};

use super::python::Script;

#[path = "../../examples/receive.rs"]
#[allow(dead_code)]
mod example;

/// Starts spead2's sender of a case of `send.py`.
fn connect(case: &str) -> Option<(Script, UdpSocket)> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let patience = Some(Duration::from_secs(60));
    socket.set_read_timeout(patience).expect("a time limit");
    let port = socket.local_addr().expect("an address").port();
    let script = Script::start("send.py", &[case, &port.to_string()])?;
    Some((script, socket))
}

/// Receives until a heap is complete.
fn next_heap(socket: &UdpSocket, assembler: &mut HeapAssembler) -> Heap {
    let mut buffer = [0; MAX_PACKET];
    loop {
        let length = socket.recv(&mut buffer).expect("a packet within a minute");
        let heap = assembler.add_packet(&buffer[..length]);
        if let Some(heap) = heap.expect("a sound packet") {
            return heap;
        }
    }
}

/// Items that have descriptors, by name.
fn items<'a>(heap: &'a Heap, table: &DescriptorTable) -> BTreeMap<String, ItemArray<'a>> {
    let described = |item: &Item<'_>| table.by_id(item.id).map(|it| it.name.clone());
    heap.items()
        .filter_map(|item| Some((described(&item)?, item)))
        .map(|(name, item)| (name, table.interpret(&item).expect("numbers")))
        .collect()
}

fn check_types(case: &str) {
    let Some((mut script, socket)) = connect(case) else {
        return;
    };
    let (mut assembler, mut table) = (HeapAssembler::default(), DescriptorTable::default());
    script.go_on();
    let heap = next_heap(&socket, &mut assembler);
    assert_eq!(table.learn(&heap), Ok(11));
    assert_eq!(table.by_name("matrix").unwrap().description, "The matrix");
    let came = items(&heap, &table);
    // spead2 sends empty items, and its receiver leaves them out.
    assert_eq!(came.len(), 11);
    let numbers = |name: &str| came[name].to_f64().expect("numbers");
    let scalar = |name: &str| came[name].scalar().expect("one value");
    assert_eq!(scalar("small"), ElementValue::Signed(-3));
    assert_eq!(scalar("count"), ElementValue::Unsigned(0x1234_5678_9abc));
    assert_eq!(scalar("number"), ElementValue::Signed(-70000));
    assert_eq!(came["matrix"].shape(), [2, 3]);
    assert!(!came["matrix"].is_fortran_order());
    assert_eq!(numbers("matrix"), [1.0, -2.0, 3.0, -4.0, 5.0, -6.0]);
    assert!(came["columns"].is_fortran_order());
    assert_eq!(
        numbers("columns"),
        [1, 4, 2, 5, 3, 6].map(|n| f64::from(n) / 8.0)
    );
    assert_eq!(
        came["flags"].values().collect::<Vec<_>>(),
        [true, false, false, true].map(ElementValue::Bool)
    );
    assert_eq!(
        came["voltages"].values().collect::<Vec<_>>(),
        [(1.0, -2.0), (0.0, 0.5)].map(|(re, im)| ElementValue::Complex { re, im })
    );
    assert_eq!(came["samples"].shape(), [5]);
    assert_eq!(numbers("samples"), [2047.0, -2048.0, -1.0, 0.0, 7.0]);
    assert_eq!(came["pairs"].shape(), [2]);
    assert_eq!(numbers("pairs"), [15.0, -1.0, 3.0, 99999.0]);
    assert_eq!(came["telescope"].text().as_deref(), Some("MeerKAT"));
    assert!(came["nothing"].is_empty());

    // Items that have changed, without descriptors.
    script.go_on();
    let heap = next_heap(&socket, &mut assembler);
    assert_eq!(table.learn(&heap), Ok(0));
    let changed = items(&heap, &table);
    assert_eq!(changed.keys().collect::<Vec<_>>(), ["number", "samples"]);
    assert_eq!(changed["samples"].to_f64(), Some(vec![1.0, -1.0]));
    assert_eq!(changed["number"].scalar(), Some(ElementValue::Signed(5)));

    script.go_on();
    assert!(next_heap(&socket, &mut assembler).is_stream_stop());
    script.end();
    let counts = assembler.counts();
    assert_eq!((counts.heaps, counts.incomplete_heaps), (3, 0));
}

#[test]
fn items_of_all_types_are_read_from_spead2() {
    check_types("types");
}

#[test]
fn other_flavours_of_spead2_are_read() {
    check_types("types40");
}

/// Bytes of the heaps that have the pattern, of which each byte is raised by `raised`.
fn pattern(raised: u64) -> Vec<u8> {
    (0..20_000).map(|n| (n % 251 + raised) as u8).collect()
}

#[test]
fn interleaved_heaps_of_spead2_are_taken_apart() {
    let Some((mut script, socket)) = connect("interleaved") else {
        return;
    };
    script.go_on();
    let mut assembler = HeapAssembler::default();
    for heap_count in [11, 12, 13] {
        let heap = next_heap(&socket, &mut assembler);
        assert_eq!(heap.heap_count(), heap_count);
        assert_eq!(heap.addressed(0x5000), Some(&pattern(heap_count)[..]));
    }
    assert_eq!(assembler.counts().packets, 3 * 14);
    script.end();
}

#[test]
fn pointers_of_spead2_are_found_in_any_packet() {
    let Some((mut script, socket)) = connect("pointers") else {
        return;
    };
    script.go_on();
    let mut assembler = HeapAssembler::default();
    let heap = next_heap(&socket, &mut assembler);
    assert!(assembler.counts().packets > 5);
    for n in 0..1000 {
        assert_eq!(heap.immediate(0x2000 + n), Some(3 * n));
    }
    assert_eq!(heap.addressed(0x5000), Some(&pattern(0)[..]));
    assert_eq!(heap.items().count(), 1001);
    script.end();
}

#[test]
fn repeated_pointers_of_spead2_are_taken_once() {
    let Some((mut script, socket)) = connect("repeated") else {
        return;
    };
    script.go_on();
    let mut assembler = HeapAssembler::default();
    let heap = next_heap(&socket, &mut assembler);
    assert_eq!(heap.items().count(), 21);
    assert_eq!(heap.immediate(0x2000 + 19), Some(57));
    assert_eq!(heap.addressed(0x5000), Some(&pattern(0)[..]));
    script.end();
}

#[test]
fn the_example_prints_what_spead2_sends() {
    let Some((mut script, socket)) = connect("types") else {
        return;
    };
    for _ in 0..3 {
        script.go_on();
    }
    let mut lines = Vec::new();
    let mut print = |name: &str, values: Vec<f64>| lines.push((name.to_owned(), values));
    example::receive(&socket, &mut print).expect("a stream that ends");
    assert_eq!(lines.len(), 13);
    assert_eq!(lines[2], ("number".to_owned(), vec![-70000.0]));
    assert_eq!(lines[12].1.len(), 2);
    script.end();
}
