use std::mem::ManuallyDrop;
use std::thread;

use super::lock::is_left;
use super::segment::open;
use super::*;

/// What is left of a writer whose process is killed.
fn kill(writer: SharedWriter) {
    let mut writer = ManuallyDrop::new(writer);
    // SAFETY: it is dropped once, and nobody uses it any more.
    unsafe { std::ptr::drop_in_place(&mut writer.segment) };
}

#[test]
fn what_a_killed_writer_left_is_nobodys() {
    let (name, stop) = (
        format!("karoo-flow-killed-{}", std::process::id()),
        Stop::new(),
    );
    let write = || SharedWriter::create(&name, 4096, &stop).unwrap();
    let idle = Some(Duration::from_millis(20));
    let read = || SharedReader::open(&name, 4096, idle, &stop).unwrap();
    // One with a reader, which ends with it, and one without.
    let mut writer = write();
    let mut reader = read();
    writer.write_all(b"lost").unwrap();
    kill(writer);
    reader.idle = None;
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"lost");
    kill(write());
    // It is not taken for one that writes.
    assert!(read().segment.is_none());
    kill(write());
    let mut writer = write();
    let error = SharedWriter::create(&name, 64, &stop).err().unwrap();
    assert!(error.to_string().contains("give another name"), "{error}");
    assert!(!writer.taken.try_wait(), "no reader is there");
    let mut reader = read();
    writer.write_all(b"new").unwrap();
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"new");
}

/// A writer that ends before its reader has looked has left the reader other semaphores.
#[test]
fn a_reader_waits_for_the_next_writer_where_one_is_gone_again() {
    let name = format!("karoo-flow-gone-{}", std::process::id());
    let there = Semaphore::open(format!("/{name}_TX")).unwrap();
    there.post().unwrap();
    let idle = Some(Duration::from_millis(20));
    let reader = SharedReader::open(&name, 4096, idle, &Stop::new()).unwrap();
    assert!(reader.segment.is_none());
    drop(SharedWriter::create(&name, 4096, &Stop::new()).unwrap());
}

/// It would wait for ever for its reader, which waits at the semaphores of that name.
#[test]
fn a_writer_that_begins_while_another_ends_has_the_semaphores_of_its_name() {
    let (name, stop) = (
        format!("karoo-flow-next-{}", std::process::id()),
        Stop::new(),
    );
    let begin = || loop {
        match SharedWriter::create(&name, 64, &stop) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            other => return other.unwrap(),
        }
    };
    let mut last = begin();
    for _ in 0..1000 {
        last = thread::scope(|scope| {
            let next = scope.spawn(begin);
            drop(last);
            next.join().unwrap()
        });
        let there = Semaphore::open(format!("/{name}_TX")).unwrap();
        assert!(there.try_wait(), "it tells readers that it is there");
    }
}

/// Also where each finds what a killed one has left.
#[test]
fn of_two_writers_that_begin_at_once_one_is_refused() {
    let (name, stop) = (
        format!("karoo-flow-two-{}", std::process::id()),
        Stop::new(),
    );
    let write = || SharedWriter::create(&name, 64, &stop);
    for round in 0..1000 {
        if round % 2 == 0 {
            kill(write().unwrap());
        }
        let both = thread::scope(|scope| {
            let one = scope.spawn(write);
            [write(), one.join().unwrap()]
        });
        let begun = both.iter().filter(|writer| writer.is_ok()).count();
        assert_eq!(begun, 1);
        for error in both.iter().filter_map(|writer| writer.as_ref().err()) {
            assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        }
        let reader = SharedReader::open(&name, 64, None, &stop).unwrap();
        assert!(reader.segment.is_some());
    }
}

/// Where Linux has a segment.
fn segment_path(name: &str) -> std::path::PathBuf {
    std::path::Path::new("/dev/shm").join(name)
}

/// Whether the second semaphore that a reader opens is there.
fn has_semaphores(name: &str) -> bool {
    std::path::Path::new(&format!("/dev/shm/sem.{name}_RX")).exists()
}

#[test]
fn a_reader_that_no_writer_joins_leaves_nothing_behind() {
    let name = format!("karoo-flow-alone-{}", std::process::id());
    let reader = SharedReader::open(&name, 64, Some(Duration::ZERO), &Stop::new()).unwrap();
    assert!(reader.segment.is_none() && !has_semaphores(&name));
    let told = Stop::new();
    told.set();
    assert!(SharedReader::open(&name, 64, None, &told).is_err());
    assert!(!has_semaphores(&name));
    // What a writer has made stays its own.
    let writer = SharedWriter::create(&name, 64, &Stop::new()).unwrap();
    assert!(writer.there.try_wait());
    let reader = SharedReader::open(&name, 64, Some(Duration::ZERO), &Stop::new()).unwrap();
    assert!(reader.segment.is_none() && has_semaphores(&name));
    drop(writer);
    assert!(!has_semaphores(&name));
}

/// Two readers wait at the semaphores of one name, and one of them takes these away.
#[test]
fn a_reader_that_waits_is_found_by_the_writer_that_comes_behind_another_reader() {
    let name = format!("karoo-flow-behind-{}", std::process::id());
    let (stop, told) = (Stop::new(), Stop::new());
    told.set();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let idle = Some(Duration::from_secs(60));
            let mut reader = SharedReader::open(&name, 64, idle, &stop).unwrap();
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        });
        while !has_semaphores(&name) {
            thread::yield_now();
        }
        assert!(SharedReader::open(&name, 64, None, &told).is_err());
        let mut writer = SharedWriter::create(&name, 64, &stop).unwrap();
        writer.write_all(b"here").unwrap();
        drop(writer);
        assert_eq!(waits.join().unwrap().unwrap(), b"here");
    });
}

/// Such a name is no passing reader's: to wait for it would be to wait for ever.
#[test]
fn a_name_that_cannot_be_opened_is_refused() {
    let name = format!("karoo-flow-folder-{}", std::process::id());
    let folder = segment_path(&name);
    std::fs::create_dir(&folder).unwrap();
    let refused = SharedWriter::create(&name, 64, &Stop::new());
    std::fs::remove_dir(&folder).unwrap();
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("cannot be opened"), "{error}");
}

#[test]
fn a_reader_that_ends_is_waited_for_and_a_writer_that_lives_is_not() {
    let name = format!("karoo-flow-held-{}", std::process::id());
    let (stop, told) = (Stop::new(), Stop::new());
    told.set();
    let held = hold(&name).unwrap().unwrap();
    assert!(!Segment::clear(&name).unwrap());
    let error = SharedWriter::create(&name, 64, &told).err().unwrap();
    assert!(error.to_string().contains("stopped before"), "{error}");
    // Nor for ever.
    let error = SharedWriter::create(&name, 64, &stop).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    drop(held);
    let writer = SharedWriter::create(&name, 64, &stop).unwrap();
    let error = Segment::clear(&name).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    drop(writer);
    // Readers share what a killed writer has left while they look at it.
    kill(SharedWriter::create(&name, 64, &stop).unwrap());
    let looks = open(&super::name(format!("/{name}")).unwrap(), libc::O_RDONLY).unwrap();
    assert!(is_left(&looks).unwrap());
    assert!(!Segment::clear(&name).unwrap());
    drop(looks);
    drop(SharedWriter::create(&name, 64, &stop).unwrap());
}

#[test]
fn a_segment_that_cannot_be_made_whole_is_taken_away() {
    let name = format!("karoo-flow-large-{}", std::process::id());
    // More than a file can have, and more than can be mapped.
    for ring in [usize::MAX / 2, 1 << 60] {
        assert!(Segment::make(&name, ring).is_err());
        assert!(!segment_path(&name).exists());
    }
}

#[test]
fn a_writer_whose_reader_is_gone_fails() {
    let name = format!("karoo-flow-reader-{}", std::process::id());
    let stop = Stop::new();
    let ends = || {
        let writer = SharedWriter::create(&name, 64, &stop).unwrap();
        let reader = SharedReader::open(&name, 64, None, &stop).unwrap();
        (writer, reader)
    };
    let (mut writer, reader) = ends();
    writer.write_all(&[7; 60]).unwrap();
    assert!(!writer.reader_is_gone());
    drop(reader);
    let error = writer.write_all(&[7; 5]).unwrap_err();
    assert_eq!(error.to_string(), "the reader has gone");
    writer.flush().unwrap();
    assert_eq!(writer.flush().unwrap_err().kind(), ErrorKind::BrokenPipe);
    drop(writer);
    // One that has taken all was a good reader.
    let (mut writer, mut reader) = ends();
    writer.write_all(&[7; 60]).unwrap();
    reader.read_exact(&mut [0; 60]).unwrap();
    drop(reader);
    writer.flush().unwrap();
    writer.flush().unwrap();
}

/// A program of Laminar's locks nothing: that there is no lock says nothing of it.
#[test]
fn a_reader_without_a_lock_is_not_taken_for_gone() {
    let name = format!("karoo-flow-unlocked-{}", std::process::id());
    let mut writer = SharedWriter::create(&name, 64, &Stop::new()).unwrap();
    writer.taken.post().unwrap();
    writer.write_all(&[7; 60]).unwrap();
    assert!(writer.has_reader && !writer.reader_is_gone());
}

#[test]
fn a_reader_of_another_size_leaves_the_writer_to_the_next_one() {
    let name = format!("karoo-flow-sizes-{}", std::process::id());
    let mut writer = SharedWriter::create(&name, 64, &Stop::new()).unwrap();
    let read = |bytes| SharedReader::open(&name, bytes, Some(Duration::ZERO), &Stop::new());
    let error = read(128).err().unwrap().to_string();
    assert!(error.contains("give both ends the same size="), "{error}");
    let mut reader = read(64).unwrap();
    assert!(reader.segment.is_some());
    writer.write_all(b"here").unwrap();
    drop(writer);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"here");
}
