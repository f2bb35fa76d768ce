//! This crate's heaps, received by spead2.

use std::net::UdpSocket;

use serde_json::{Value, json};
use spead::descriptor::ElementType;
use spead::{Descriptor, HeapBuilder, PacketSize};

use super::python::Script;

#[path = "../../examples/send.rs"]
#[allow(dead_code)]
mod example;

const SIZE: PacketSize = PacketSize::Whole(1472);

/// Starts spead2's receiver, and connects a socket to it.
fn connect() -> Option<(Script, UdpSocket)> {
    let mut script = Script::start("receive.py", &[])?;
    let port = script.line().as_u64().expect("a port") as u16;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.connect(("127.0.0.1", port)).expect("a route");
    Some((script, socket))
}

fn send<'a>(socket: &UdpSocket, packets: impl IntoIterator<Item = &'a Vec<u8>>) {
    for packet in packets {
        assert_eq!(socket.send(packet).expect("a sent packet"), packet.len());
    }
}

fn cut(heap: &HeapBuilder<'_>, size: PacketSize) -> Vec<Vec<u8>> {
    heap.packets(size)
        .expect("a heap that can be sent")
        .collect()
}

/// Ends the stream. Returns the number of heaps that spead2 found incomplete.
fn stop(mut script: Script, socket: &UdpSocket) -> Value {
    send(socket, &cut(&HeapBuilder::new(1 << 40).stream_stop(), SIZE));
    let incomplete = script.line();
    script.end();
    incomplete
}

/// A descriptor of fields of bits.
fn fields(id: u64, name: &str, shape: &[Option<u64>], fields: &[(char, u16)]) -> Descriptor {
    Descriptor {
        id,
        name: name.to_owned(),
        description: format!("The {name}"),
        shape: shape.to_vec(),
        element: ElementType::Format(fields.to_vec()),
    }
}

#[test]
fn items_of_all_types_mean_the_same_to_spead2() {
    let Some((mut script, socket)) = connect() else {
        return;
    };
    let array =
        |id, name, shape: &[u64], descr| Descriptor::array(id, name, "An array", shape, descr);
    let mut columns = array(0x1003, "columns", &[2, 3], "<u2");
    columns.element = ElementType::Numpy {
        descr: "<u2".to_owned(),
        fortran_order: true,
    };
    let descriptors = [
        Descriptor::immediate(0x1000, "count", "A number of 48 bits"),
        fields(0x1001, "small", &[], &[('i', 16)]),
        array(0x1002, "matrix", &[2, 3], ">i2"),
        columns,
        array(0x1004, "flag", &[], "|b1"),
        array(0x1005, "voltage", &[], "<c8"),
        fields(0x1006, "samples", &[None], &[('i', 12)]),
        fields(0x1007, "pairs", &[Some(2)], &[('u', 4), ('i', 20)]),
        fields(0x1008, "telescope", &[None], &[('c', 8)]),
    ];
    let matrix: Vec<u8> = [1i16, -2, 3, -4, 5, -6]
        .iter()
        .flat_map(|it| it.to_be_bytes())
        .collect();
    let columns: Vec<u8> = [1u16, 4, 2, 5, 3, 6]
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    let voltage = [1.5f32.to_le_bytes(), (-2f32).to_le_bytes()].concat();
    let heap = descriptors
        .iter()
        .fold(HeapBuilder::new(1), HeapBuilder::descriptor)
        .immediate(0x1000, 0x1234_5678_9abc)
        .immediate(0x1001, 0xfffd)
        .addressed(0x1002, &matrix)
        .addressed(0x1003, &columns)
        .immediate(0x1004, 1)
        .addressed(0x1005, &voltage)
        // 2047, -2048, -1, 0, 7, and four bits of padding.
        .addressed(0x1006, &[0x7f, 0xf8, 0x00, 0xff, 0xf0, 0x00, 0x00, 0x70])
        // (15, -1), (3, 99999).
        .addressed(0x1007, &[0xff, 0xff, 0xff, 0x31, 0x86, 0x9f])
        .addressed(0x1008, "MeerKAT");
    send(&socket, &cut(&heap, SIZE));
    assert_eq!(
        script.line(),
        json!({"heap_count": 1, "items": {
            "count": {"shape": [], "value": 0x1234_5678_9abcu64},
            "small": {"shape": [], "value": -3},
            "matrix": {"shape": [2, 3], "value": [[1, -2, 3], [-4, 5, -6]]},
            "columns": {"shape": [2, 3], "value": [[1, 2, 3], [4, 5, 6]]},
            "flag": {"shape": [], "value": true},
            "voltage": {"shape": [], "value": [1.5, -2.0]},
            "samples": {"shape": [5], "value": [2047, -2048, -1, 0, 7]},
            "pairs": {"shape": [2], "value": [[15, -1], [3, 99999]]},
            "telescope": {"shape": [], "value": "MeerKAT"},
        }})
    );
    assert_eq!(stop(script, &socket), 0);
}

#[test]
fn spead2_puts_shuffled_repeated_and_interleaved_packets_together() {
    let Some((mut script, socket)) = connect() else {
        return;
    };
    let descriptor = Descriptor::array(0x1000, "bytes", "", &[20_000], "|u1");
    send(
        &socket,
        &cut(&HeapBuilder::new(1).descriptor(&descriptor), SIZE),
    );
    assert_eq!(script.line()["heap_count"], 1);
    // spead2 takes a packet that comes once more after its heap for the begin of another heap.
    let mut first_count = 2;
    for (size, repeats) in [
        (PacketSize::Whole(1472), false),
        (PacketSize::Whole(1001), true),
        (PacketSize::Payload(1024), false),
        (PacketSize::Payload(8192), true),
    ] {
        let heap_bytes = [2u32, 3]
            .map(|seed| -> Vec<u8> { (0..20_000u32).map(|n| (n * seed % 251) as u8).collect() });
        let mut packets = Vec::new();
        for (heap_count, bytes) in (first_count..).zip(&heap_bytes) {
            let heap = HeapBuilder::new(heap_count).addressed(0x1000, bytes);
            packets.extend(cut(&heap.repeat_pointers(repeats), size));
        }
        packets.extend_from_within(3..5);
        // Steps of 13 through all packets, of which there is no multiple of 13.
        let count = packets.len();
        assert_ne!(count % 13, 0);
        send(&socket, (0..count).map(|n| &packets[n * 13 % count]));
        let mut heaps = [script.line(), script.line()];
        heaps.sort_by_key(|heap| heap["heap_count"].as_u64());
        for ((heap_count, bytes), heap) in (first_count..).zip(&heap_bytes).zip(heaps) {
            assert_eq!(heap["heap_count"], heap_count);
            assert_eq!(heap["items"]["bytes"]["value"], json!(bytes));
        }
        first_count += 2;
    }
    stop(script, &socket);
}

#[test]
fn spead2_finds_pointers_in_any_packet() {
    let Some((mut script, socket)) = connect() else {
        return;
    };
    let count = 400;
    let names: Vec<String> = (0..count).map(|n| format!("i{n}")).collect();
    let mut heap = HeapBuilder::new(9);
    for (id, name) in (0x2000..).zip(&names) {
        heap = heap.descriptor(&Descriptor::immediate(id, name, ""));
    }
    let heap = (0..count).fold(heap, |heap, n| heap.immediate(0x2000 + n, 3 * n));
    send(&socket, &cut(&heap, SIZE));
    let heap = script.line();
    let expected = names.iter().zip(0..count);
    let expected: serde_json::Map<_, _> = expected
        .map(|(name, n)| (name.clone(), json!({"shape": [], "value": 3 * n})))
        .collect();
    assert_eq!(heap["items"], Value::Object(expected));
    assert_eq!(stop(script, &socket), 0);
}

#[test]
fn the_example_sends_what_spead2_receives() {
    let Some((mut script, socket)) = connect() else {
        return;
    };
    example::send(&socket).expect("heaps that are sent");
    for n in 0..10u64 {
        let heap = script.line();
        assert_eq!(heap["heap_count"], n + 1);
        assert_eq!(heap["items"]["timestamp"]["value"], 4096 * n);
        let power: Vec<f64> = (0..2048)
            .map(|channel| (channel * (n + 1)) as f64)
            .collect();
        assert_eq!(heap["items"]["power"]["value"], json!(power));
    }
    assert_eq!(script.line(), 0);
    script.end();
}
