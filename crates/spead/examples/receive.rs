//! Prints the items of a stream until it ends: `cargo run -p spead --example receive [ADDRESS]`.
use spead::{DescriptorTable, HeapAssembler, packet::MAX_PACKET};
use std::{io, net::UdpSocket};

/// Gives names and numbers of items to `print`. Packets that break a rule are counted, no more.
pub fn receive(socket: &UdpSocket, print: &mut dyn FnMut(&str, Vec<f64>)) -> io::Result<()> {
    let (mut assembler, mut table) = (HeapAssembler::default(), DescriptorTable::default());
    let mut buffer = [0; MAX_PACKET];
    loop {
        let length = socket.recv(&mut buffer)?;
        if let Ok(Some(heap)) = assembler.add_packet(&buffer[..length]) {
            if heap.is_stream_stop() {
                println!("{:?}", assembler.counts());
                return Ok(());
            }
            if let Err(error) = table.learn(&heap) {
                eprintln!("{error}");
            }
            for item in heap.items() {
                if let (Some(it), Ok(array)) = (table.by_id(item.id), table.interpret(&item)) {
                    print(&it.name, array.to_f64().unwrap_or_default());
                }
            }
        }
    }
}

fn main() -> io::Result<()> {
    let socket = UdpSocket::bind(std::env::args().nth(1).unwrap_or("127.0.0.1:7148".into()))?;
    receive(&socket, &mut |name, values| println!("{name} {values:?}"))
}
