//! Sends a stream of power spectra: `cargo run -p spead --example send [ADDRESS]`. Try it with the
//! example `receive`, or with any receiver of spead2's.
use spead::{Descriptor, HeapBuilder, PacketSize};
use std::net::UdpSocket;

/// Sends ten heaps of 2048 channels to the socket's address, then the heap that ends the stream.
pub fn send(socket: &UdpSocket) -> Result<(), Box<dyn std::error::Error>> {
    let time = Descriptor::immediate(0x1600, "timestamp", "Number of the first sample");
    let power = Descriptor::array(0x1700, "power", "Power by channel", &[2048], "<f4");
    for n in 0..10 {
        let channels = (0..2048).map(|channel| (channel * (n + 1)) as f32);
        let bytes: Vec<u8> = channels.flat_map(f32::to_le_bytes).collect();
        let heap = HeapBuilder::new(n + 1).descriptor(&time).descriptor(&power);
        let heap = heap.immediate(0x1600, 4096 * n).addressed(0x1700, &bytes);
        for packet in heap.packets(PacketSize::Whole(1472))? {
            socket.send(&packet)?;
        }
    }
    let stop = HeapBuilder::new(11).stream_stop();
    Ok(stop
        .packets(PacketSize::Whole(1472))?
        .try_for_each(|it| socket.send(&it).map(drop))?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(std::env::args().nth(1).unwrap_or("127.0.0.1:7148".into()))?;
    send(&socket)
}
