//! Samples through each kind of adapter, into a graph and out of it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::thread;

use karoo_flow::adapters::{Address, Awaited, Stop};
use karoo_flow::{Builder, Executor, Settings, Type};

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

/// Bytes that tell where they were.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A port that nobody has.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn what_is_no_address_is_refused_with_the_way_out() {
    for (text, wanted) in [
        ("", "give a path"),
        ("tcp:8080", "127.0.0.1:8080"),
        ("udp:127.0.0.1:80,size=0", "1 to 65507"),
        ("udp:127.0.0.1:0", "1 to 65535"),
        ("tcp-listen:127.0.0.1:0", "1 to 65535"),
        ("udp:127.0.0.1:80,idle=0", "above 0"),
        ("udp:127.0.0.1:80,speed=9", "size= and idle="),
        ("shm:a/b", "without a slash"),
        ("shm:a,size=1", "64 to"),
        ("http://here", "./http"),
    ] {
        let error = text.parse::<Address>().unwrap_err();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    for text in [
        "-",
        "a file",
        "dir/with:colon",
        "tcp:host:1",
        "shm:a,size=4096,idle=0.5",
    ] {
        assert_eq!(address(text).to_string(), text);
    }
}

#[test]
fn tcp_carries_all_bytes_either_way_round() {
    for (input, output) in [("tcp-listen", "tcp"), ("tcp", "tcp-listen")] {
        let port = free_port();
        let (input, output) = (
            format!("{input}:127.0.0.1:{port}"),
            format!("{output}:127.0.0.1:{port}"),
        );
        let sent = pattern(300_000);
        let all = sent.clone();
        let writer = thread::spawn(move || {
            let mut writer = address(&output).writer(&Stop::new()).unwrap();
            writer.write_all(&all).unwrap();
            writer.flush().unwrap();
        });
        let mut got = Vec::new();
        let mut reader = address(&input).reader(&Stop::new()).unwrap();
        reader.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == sent);
    }
}

#[test]
fn datagrams_are_cut_and_joined() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = receiver.local_addr().unwrap().port();
    let mut writer = address(&format!("udp:127.0.0.1:{port},size=100"))
        .writer(&Stop::new())
        .unwrap();
    writer.write_all(&pattern(250)).unwrap();
    writer.flush().unwrap();
    let mut sizes = Vec::new();
    let mut buffer = [0; 1000];
    for _ in 0..3 {
        sizes.push(receiver.recv(&mut buffer).unwrap());
    }
    assert_eq!(sizes, [100, 100, 50]);
    drop(receiver);
    let mut reader = address(&format!("udp:127.0.0.1:{port},idle=0.3"))
        .reader(&Stop::new())
        .unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for part in pattern(250).chunks(70) {
        sender.send_to(part, ("127.0.0.1", port)).unwrap();
    }
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    assert_eq!(got, pattern(250));
}

#[test]
fn a_stop_ends_what_waits() {
    let stop = Stop::new();
    let port = free_port();
    let name = format!("karoo-flow-stop-{}", std::process::id());
    let waiting: Vec<_> = [
        format!("tcp-listen:127.0.0.1:{port}"),
        format!("shm:{name}"),
    ]
    .into_iter()
    .map(|text| {
        let stop = stop.clone();
        thread::spawn(move || address(&text).reader(&stop).err().unwrap().to_string())
    })
    .collect();
    let udp = format!("udp:127.0.0.1:{}", free_port());
    let mut reader = address(&udp).reader(&stop).unwrap();
    stop.set();
    for thread in waiting {
        let error = thread.join().unwrap();
        assert!(error.contains("stopped before"), "{error}");
    }
    assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0);
    // The semaphores that the reader made wait for a writer: one takes them away.
    drop(
        address(&format!("shm:{name}"))
            .writer(&Stop::new())
            .unwrap(),
    );
}

#[test]
fn a_graph_runs_from_adapter_to_adapter() {
    let g = Builder::new("pass");
    g.output("y", g.input("x", Type::I16.complex()).gain(2));
    let graph = g.build().unwrap();
    let executor = Executor::new(&graph, Settings::default()).unwrap();
    let name = format!("karoo-flow-graph-{}", std::process::id());
    let shared = format!("shm:{name},size=1000");
    let port = free_port();
    let samples: Vec<i16> = (0..20_000).map(|n| (n % 9000) as i16).collect();
    let bytes: Vec<u8> = samples
        .iter()
        .flat_map(|sample| sample.to_le_bytes())
        .collect();
    let there = shared.clone();
    let from = thread::spawn(move || {
        let mut writer = address(&there).writer(&Stop::new()).unwrap();
        writer.write_all(&bytes).unwrap();
        writer.flush().unwrap();
    });
    let to = thread::spawn(move || {
        let mut all = Vec::new();
        let listen = address(&format!("tcp-listen:127.0.0.1:{port}"));
        listen
            .reader(&Stop::new())
            .unwrap()
            .read_to_end(&mut all)
            .unwrap();
        all
    });
    let stop = Stop::new();
    let reader = address(&shared).reader(&stop).unwrap();
    let writer = address(&format!("tcp:127.0.0.1:{port}"))
        .writer(&stop)
        .unwrap();
    executor
        .prepare(vec![reader], vec![writer])
        .unwrap()
        .run()
        .unwrap();
    from.join().unwrap();
    let wanted: Vec<u8> = samples
        .iter()
        .flat_map(|sample| (sample * 2).to_le_bytes())
        .collect();
    assert!(to.join().unwrap() == wanted);
}

/// The layout of the segment: a count of 8 bytes, then the ring.
#[test]
#[cfg(target_os = "linux")]
fn shared_memory_has_its_count_before_its_ring() {
    let name = format!("karoo-flow-layout-{}", std::process::id());
    let text = format!("shm:{name},size=64");
    let segment = format!("/dev/shm/{name}");
    let mut writer = address(&text).writer(&Stop::new()).unwrap();
    let mut reader = address(&text).reader(&Stop::new()).unwrap();
    let look = || std::fs::read(&segment).unwrap();
    let count = |all: &[u8]| i64::from_le_bytes(all[..8].try_into().unwrap());
    assert_eq!((look().len(), count(&look())), (72, 0));
    writer.write_all(&pattern(60)).unwrap();
    assert_eq!(count(&look()), 60);
    assert_eq!(look()[8..68], pattern(60));
    let mut got = [0; 50];
    reader.read_exact(&mut got).unwrap();
    assert_eq!(got[..], pattern(60)[..50]);
    assert_eq!(count(&look()), 10);
    // Around the end of the ring.
    writer.write_all(&[1, 2, 3, 4, 5, 6, 7]).unwrap();
    assert_eq!(
        (&look()[68..], &look()[8..11]),
        (&[1, 2, 3, 4][..], &[5, 6, 7][..])
    );
    // A count that cannot be is an error, not a read beyond the ring.
    let mut all = look();
    all[..8].copy_from_slice(&65i64.to_le_bytes());
    std::fs::write(&segment, all).unwrap();
    let error = reader.read(&mut got).unwrap_err().to_string();
    assert_eq!(error, "a count of 65 bytes in a ring of 64");
    drop(writer);
    assert!(!std::fs::exists(&segment).unwrap());
    assert!(!std::fs::exists(format!("/dev/shm/sem.{name}_TX")).unwrap());
}

/// Both ends against the library that programs of Laminar's use, where
/// `KAROO_SHARED_MEMORY_FIFO` names the folder of its sources.
#[test]
fn the_librarys_own_c_reads_and_writes_the_same_memory() {
    let Some(folder) = std::env::var_os("KAROO_SHARED_MEMORY_FIFO") else {
        println!("no KAROO_SHARED_MEMORY_FIFO: the folder with BerkeleySharedMemoryFIFO.c");
        return;
    };
    let build = tempfile::tempdir().unwrap();
    let program = build.path().join("ends");
    let main = build.path().join("main.c");
    std::fs::write(&main, include_str!("shared_ends.c")).unwrap();
    let compiled = Command::new("cc")
        .args(["-O2", "-o"])
        .args([&program, &main])
        .arg(std::path::Path::new(&folder).join("BerkeleySharedMemoryFIFO.c"))
        .arg("-I")
        .arg(&folder)
        .args(["-pthread", "-lrt"])
        .status()
        .unwrap();
    assert!(compiled.success());
    let name = format!("karoo-flow-c-{}", std::process::id());
    let text = format!("shm:{name},size=4096");
    // 1000 elements of 100 bytes, written by the library.
    let mut child = Command::new(&program)
        .args(["write", &name])
        .spawn()
        .unwrap();
    let mut got = vec![0; 100_000];
    let mut reader = address(&text).reader(&Stop::new()).unwrap();
    reader.read_exact(&mut got).unwrap();
    assert!(got == pattern(100_000));
    assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0, "its writer is gone");
    assert!(child.wait().unwrap().success());
    // And read by it: its exit code tells whether they are right.
    let mut child = Command::new(&program)
        .args(["read", &name])
        .spawn()
        .unwrap();
    let mut writer = address(&text).writer(&Stop::new()).unwrap();
    writer.write_all(&pattern(100_000)).unwrap();
    writer.flush().unwrap();
    assert!(child.wait().unwrap().success());
}

/// A named pipe in a folder of its own.
#[cfg(unix)]
fn named_pipe(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("pipe").to_str().unwrap().to_string();
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    path
}

#[cfg(unix)]
#[test]
fn a_named_pipe_carries_all_bytes_whoever_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = named_pipe(&folder);
    for reader_first in [true, false] {
        let read = |path: String| {
            let mut bytes = Vec::new();
            let mut reader = address(&path).reader(&Stop::new()).unwrap();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        };
        let write = |path: String| {
            let mut writer = address(&path).writer(&Stop::new()).unwrap();
            writer.write_all(&pattern(300_000)).unwrap();
            writer.flush().unwrap();
        };
        let (first, second) = (path.clone(), path.clone());
        let got = if reader_first {
            let reading = thread::spawn(move || read(first));
            write(second);
            reading.join().unwrap()
        } else {
            let writing = thread::spawn(move || write(first));
            let got = read(second);
            writing.join().unwrap();
            got
        };
        assert!(got == pattern(300_000), "{} bytes", got.len());
    }
}

#[cfg(unix)]
#[test]
fn a_stop_ends_named_pipes_that_wait() {
    let folder = tempfile::tempdir().unwrap();
    let path = named_pipe(&folder);
    let stop = Stop::new();
    let (of_writer, to) = (stop.clone(), path.clone());
    // Nobody reads: it waits to be opened.
    let writing =
        thread::spawn(move || address(&to).writer(&of_writer).err().map(|e| e.to_string()));
    stop.set();
    let error = writing.join().unwrap().unwrap();
    assert!(error.contains("stopped before a reader came"), "{error}");
    // Nobody writes, and then somebody writes nothing more.
    let mut reader = address(&path).reader(&stop).unwrap();
    assert_eq!(reader.read(&mut [0; 9]).unwrap(), 0);
    let mut writer = address(&path).writer(&Stop::new()).unwrap();
    writer.write_all(&[1, 2]).unwrap();
    writer.flush().unwrap();
    let mut bytes = [0; 9];
    assert_eq!(reader.read(&mut bytes).unwrap(), 2);
    assert_eq!(reader.read(&mut bytes).unwrap(), 0);
}

/// One that writes, one that has written nothing yet, and one that has gone without a byte.
#[cfg(unix)]
#[test]
fn writers_of_named_pipes_are_waited_for_until_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = named_pipe(&folder);
    let awaited = || {
        let mut awaited = Awaited::default();
        for path in [&path, "/dev/null", "no/such/pipe"] {
            awaited.add(path.as_ref()).unwrap();
        }
        awaited
    };
    let writer = || File::options().write(true).open(&path).unwrap();
    let wait = |awaited: Awaited, stop: &Stop| awaited.wait(stop).map_err(|e| e.to_string());
    let (stop, go) = (Stop::new(), Stop::new());
    stop.set();
    let wanted = Err(format!("{path}: stopped before a writer came"));
    assert_eq!(wait(awaited(), &stop), wanted);
    for bytes in [0, 1] {
        let (waits, mut writer) = (awaited(), writer());
        writer.write_all(&[7][..bytes]).unwrap();
        // What waits takes nothing.
        let reader = address(&path).reader(&stop).unwrap();
        assert_eq!(wait(waits, &stop), Ok(()));
        assert_eq!(reader.take(1).read_to_end(&mut Vec::new()).unwrap(), bytes);
    }
    let gone = awaited();
    drop(writer());
    assert_eq!(wait(gone, &go), Ok(()));
    // Waited for, and not looked for once.
    let waits = awaited();
    let coming = thread::spawn({
        let path = path.clone();
        move || File::options().write(true).open(path).unwrap()
    });
    assert_eq!(wait(waits, &go), Ok(()));
    drop(coming.join().unwrap());
    assert_eq!(wait(awaited(), &stop), wanted);
}

/// Whichever it is, for one that serves pipes in turn comes to the others only later.
#[cfg(unix)]
#[test]
fn the_first_writer_of_several_named_pipes_is_waited_for() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let paths = folders.each_ref().map(named_pipe);
    let stop = Stop::new();
    stop.set();
    for path in &paths {
        let mut awaited = Awaited::default();
        for path in &paths {
            awaited.add(path.as_ref()).unwrap();
        }
        let _writer = File::options().write(true).open(path).unwrap();
        awaited.wait(&stop).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_named_pipe_gives_at_once_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = named_pipe(&folder);
    let stop = Stop::new();
    let mut reader = address(&path).reader(&stop).unwrap();
    let mut writer = address(&path).writer(&Stop::new()).unwrap();
    writer.write_all(&[1, 2]).unwrap();
    // It gives what is there, and waits for nothing.
    stop.set();
    assert_eq!(reader.read(&mut [0; 9]).unwrap(), 2);
}

#[cfg(unix)]
#[test]
fn rings_of_two_sizes_and_rings_without_a_writer_are_told() {
    let name = format!("karoo-flow-sizes-{}", std::process::id());
    for (own, others) in [(4096, 64), (64, 4096)] {
        let to = address(&format!("shm:{name},size={own}"));
        let writer = to.writer(&Stop::new()).unwrap();
        let from = address(&format!("shm:{name},size={others}"));
        let error = from.reader(&Stop::new()).err().unwrap().to_string();
        assert!(error.contains("give both ends the same size="), "{error}");
        drop(writer);
    }
    let refused = karoo_flow::adapters::SharedWriter::create(&name, 0, &Stop::new());
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("give 64 to"), "{error}");
    // No writer comes within `idle`.
    let from = address(&format!("shm:{name},idle=0.05"));
    let mut bytes = Vec::new();
    let mut reader = from.reader(&Stop::new()).unwrap();
    assert_eq!(reader.read_to_end(&mut bytes).unwrap(), 0);
    // A writer takes away the semaphores that wait for one.
    drop(
        address(&format!("shm:{name}"))
            .writer(&Stop::new())
            .unwrap(),
    );
}
