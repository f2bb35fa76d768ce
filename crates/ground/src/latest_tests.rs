//! A value of several words between two threads; `tests/loom/latest.rs` has every interleaving.

use super::Latest;

#[test]
fn a_reader_never_sees_half_a_write() {
    const WRITES: u64 = 100_000;
    let latest = Latest::new([0; 4]);
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=WRITES).for_each(|i| latest.write([i; 4])));
        let mut last = 0;
        while last < WRITES {
            let words = latest.read();
            assert!(words.iter().all(|&word| word == words[0]), "{words:?}");
            assert!(words[0] >= last);
            last = words[0];
        }
    });
}
