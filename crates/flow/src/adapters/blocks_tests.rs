//! Blocks as C compilers and hands lay them out.

use std::io::Cursor;

use super::*;
use crate::builder::Builder;
use crate::types::Scalar;

/// An output whose bytes can be seen.
#[derive(Clone, Default)]
struct Seen(Rc<RefCell<Vec<u8>>>);

impl Write for Seen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn layout(ports: &[(&str, usize)]) -> BlockLayout {
    let port = |(kind, samples): &(&str, usize)| (kind.parse().unwrap(), *samples);
    BlockLayout::new(ports.iter().map(port)).unwrap()
}

fn read(layout: BlockLayout, bytes: &[u8]) -> Vec<Box<dyn Read + Send>> {
    layout.readers(Box::new(Cursor::new(bytes.to_vec())), &Stop::new())
}

/// Offsets and sizes that C compilers give such structures under `#pragma pack(push, 4)`.
#[test]
fn elements_are_laid_out_as_packed_structures() {
    let ports = [("bool", 3), ("i16", 3), ("complex f64", 2), ("u8", 5)];
    let layout = layout(&ports);
    let at: Vec<usize> = layout.planes.iter().map(|plane| plane.at).collect();
    assert_eq!(at, [0, 4, 12, 44]);
    assert_eq!(layout.bytes(), 52);
    let layout = self::layout(&[("u8", 3), ("i16", 1)]);
    assert_eq!((layout.planes[1].at, layout.bytes()), (4, 6));
    assert_eq!(self::layout(&[("bool", 3)]).bytes(), 3);
}

#[test]
fn a_block_of_complex_samples_has_real_parts_first() {
    let bytes: Vec<u8> = (0..12).collect();
    let mut samples = Vec::new();
    let mut readers = read(layout(&[("complex u8", 3)]), &bytes);
    readers[0].read_to_end(&mut samples).unwrap();
    assert_eq!(samples, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]);
    // Vectors: all elements of a sample before the next sample, in each part.
    let mut samples = Vec::new();
    let mut readers = read(layout(&[("complex u8[3]", 2)]), &bytes);
    readers[0].read_to_end(&mut samples).unwrap();
    assert_eq!(samples, [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]);
}

#[test]
fn samples_come_back_whatever_the_pieces() {
    for scalar in Scalar::ALL {
        let kind = Type::of(scalar);
        let kind = match scalar {
            Scalar::Bool => kind,
            _ => kind.complex(),
        };
        let ports = [(kind, 4), (Type::U8, 2)];
        let layout = BlockLayout::new(ports).unwrap();
        let numbers = |bytes: usize, first: usize| -> Vec<u8> {
            (0..bytes).map(|at| (first + 7 * at) as u8).collect()
        };
        // Three elements.
        let (one, other) = (numbers(12 * kind.bytes(), 1), numbers(6, 50));
        let seen = Seen::default();
        let mut writers = layout.clone().writers(Box::new(seen.clone()));
        for piece in one.chunks(5) {
            writers[0].write_all(piece).unwrap();
        }
        assert!(seen.0.borrow().is_empty(), "the other port has no block");
        for piece in other.chunks(4) {
            writers[1].write_all(piece).unwrap();
        }
        assert_eq!(seen.0.borrow().len(), 3 * layout.bytes());
        let mut readers = read(layout, &seen.0.borrow());
        let (mut first, mut second) = (vec![0; one.len()], Vec::new());
        for piece in first.chunks_mut(3) {
            readers[0].read_exact(piece).unwrap();
        }
        readers[1].read_to_end(&mut second).unwrap();
        assert_eq!((first, second), (one, other), "{kind}");
        assert_eq!(readers[0].read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn the_last_element_is_filled_up_once() {
    let seen = Seen::default();
    let ports = [("complex u8", 3), ("u8", 3)];
    let mut writers = layout(&ports).writers(Box::new(seen.clone()));
    writers[0].write_all(&[1, 2, 3, 4]).unwrap();
    writers[1].write_all(&[5, 6]).unwrap();
    for _ in 0..2 {
        writers
            .iter_mut()
            .for_each(|writer| writer.flush().unwrap());
    }
    assert_eq!(seen.0.take(), [1, 3, 0, 2, 4, 0, 5, 6, 0]);
}

#[test]
fn a_stream_that_ends_within_an_element_is_an_error_unless_all_stops() {
    let bytes: Vec<u8> = (0..9).collect();
    let mut samples = Vec::new();
    let mut readers = read(layout(&[("complex u8", 3)]), &bytes);
    let error = readers[0].read_to_end(&mut samples).unwrap_err();
    assert!(error.to_string().contains("3 bytes into an element of 6"));
    // What was whole has come, and the end is told once.
    assert_eq!(samples, [0, 3, 1, 4, 2, 5]);
    assert_eq!(readers[0].read(&mut [0]).unwrap(), 0);
    let stop = Stop::new();
    stop.set();
    let reader = Box::new(Cursor::new(bytes));
    let mut readers = layout(&[("complex u8", 3)]).readers(reader, &stop);
    assert_eq!(readers[0].read_to_end(&mut Vec::new()).unwrap(), 6);
}

#[test]
fn ports_of_lower_rates_have_smaller_blocks() {
    let g = Builder::new("rates");
    let x = g.input("x", Type::F32.complex());
    g.output("third", x.down(3));
    g.output("half", x.down(2));
    let graph = g.build().unwrap();
    let ports: Vec<NodeId> = graph.outputs().collect();
    // Two samples of a third of the rate, three of the half.
    let layout = BlockLayout::of(&graph, &ports, 3).unwrap();
    assert_eq!((layout.planes[1].at, layout.bytes()), (16, 40));
    let error = BlockLayout::of(&graph, &ports, 4).unwrap_err();
    assert!(error.contains("a multiple of 3"), "{error}");
    // Each alone may have what it wants.
    assert_eq!(BlockLayout::of(&graph, &ports[..1], 5).unwrap().bytes(), 40);
    let error = BlockLayout::of(&graph, &ports, 3 << 26).unwrap_err();
    assert!(error.contains("give less"), "{error}");
}

#[test]
fn a_block_without_samples_is_refused() {
    let empty = Type::F32.vector(0);
    for port in [(Type::F32, 0), (empty, 3)] {
        let error = BlockLayout::new([(Type::U8, 1), port]).unwrap_err();
        assert_eq!(error, BlockLayoutError::Empty(1));
    }
}

#[test]
fn rates_with_too_little_in_common_are_refused_however_many() {
    let g = Builder::new("primes");
    let x = g.input("x", Type::U8);
    let is_prime = |n: &usize| {
        (2..*n)
            .take_while(|d| d * d <= *n)
            .all(|d| !n.is_multiple_of(d))
    };
    for prime in (1022..).filter(is_prime).take(15) {
        g.output(&format!("of{prime}"), x.down(prime as u64));
    }
    // One sample of it is the least of any.
    g.output("all", x);
    let graph = g.build().unwrap();
    let ports: Vec<NodeId> = graph.outputs().collect();
    let error = BlockLayout::of(&graph, &ports, 1 << 20).unwrap_err();
    assert!(error.contains("give each port an address"), "{error}");
}

/// Gives pieces of a stream as they are, and counts the bytes that it was asked for.
struct Pieces(Vec<Vec<u8>>, Arc<Mutex<Vec<usize>>>);

impl Read for Pieces {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.1.lock().unwrap().push(bytes.len());
        assert!(!self.0.is_empty(), "whoever reads would wait");
        let piece = self.0.remove(0);
        bytes[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

#[test]
fn many_elements_are_read_at_once_and_none_is_waited_for() {
    let asked = Arc::default();
    let pieces = [vec![1, 2], vec![3], vec![4, 5, 6, 7, 8, 9, 10]];
    let layout = layout(&[("u8", 2), ("u8", 1)]);
    let reader = Pieces(pieces.into(), Arc::clone(&asked));
    let mut readers = layout.readers(Box::new(reader), &Stop::new());
    // Seven samples are in four elements of three bytes; the first element has come.
    let mut samples = [0; 7];
    assert_eq!(readers[0].read(&mut samples).unwrap(), 2);
    assert_eq!(samples[..2], [1, 2]);
    // Two more elements, and a byte of the next.
    assert_eq!(readers[0].read(&mut samples[2..]).unwrap(), 4);
    assert_eq!(samples, [1, 2, 4, 5, 7, 8, 0]);
    let mut others = [0; 3];
    readers[1].read_exact(&mut others).unwrap();
    assert_eq!(others, [3, 6, 9]);
    // No more than what is asked for is read: the rest is for whoever reads behind a limit.
    assert_eq!(*asked.lock().unwrap(), [12, 10, 9]);
}

/// Counts writes.
#[derive(Clone, Default)]
struct Writes(Rc<RefCell<Vec<usize>>>);

impl Write for Writes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().push(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn whole_elements_are_written_at_once() {
    let writes = Writes::default();
    let mut writers = layout(&[("u8", 2), ("u8", 1)]).writers(Box::new(writes.clone()));
    writers[0].write_all(&[0; 2 * 1000 + 1]).unwrap();
    writers[1].write_all(&[0; 1000]).unwrap();
    assert_eq!(*writes.0.borrow(), [3000]);
}

#[test]
fn elements_that_no_memory_would_hold_are_none() {
    let large = Type::F64.complex().vector(1 << 20);
    let of = |samples: usize| BlockLayout::new([(large, samples)]);
    assert_eq!(of(usize::MAX), Err(BlockLayoutError::Large(usize::MAX)));
    assert_eq!(of(17), Err(BlockLayoutError::Large(17 << 24)));
    assert!(of(16).is_ok());
}
