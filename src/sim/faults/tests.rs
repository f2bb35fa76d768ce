use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const HEAPS: u64 = 2000;

fn run(plan: &str, seed: u64) -> (Vec<SimHeap>, Vec<Fault>) {
    let ledger = Ledger::default();
    let heaps = (0..HEAPS).flat_map(|index| (0..2).map(move |pol| SimHeap::new(index, pol)));
    let plan: FaultPlan = plan.parse().unwrap();
    let sent = plan.decorate(heaps, seed, 4096, &ledger).collect();
    (sent, ledger.take())
}

/// The heaps of the fault's polarisation in the order sent, and where among them its heap is.
fn order(sent: &[SimHeap], fault: &Fault) -> (Vec<u64>, usize) {
    let of_pol = sent.iter().filter(|heap| heap.pol == fault.pol);
    let of_pol: Vec<u64> = of_pol.map(|heap| heap.index).collect();
    let place = of_pol.iter().position(|index| *index == fault.heap);
    (of_pol, place.unwrap())
}

#[test]
fn nothing_happens_without_a_plan() {
    let (sent, faults) = run("", 1);
    assert_eq!(sent.len() as u64, 2 * HEAPS);
    assert!(sent.is_sorted_by_key(|heap| (heap.index, heap.pol)));
    assert!(faults.is_empty());
}

#[test]
fn reordered_heaps_follow_their_successor() {
    let (sent, faults) = run("reorder=0.1", 1);
    assert!(!faults.is_empty());
    for fault in faults {
        let (of_pol, place) = order(&sent, &fault);
        if fault.heap + 1 < HEAPS {
            assert_eq!(of_pol[place - 1], fault.heap + 1);
        }
    }
}

#[test]
fn late_heaps_are_late() {
    let (sent, faults) = run("late=0.01:100", 1);
    assert!(faults.iter().any(|fault| fault.heap < HEAPS - 100));
    for fault in faults {
        let (of_pol, place) = order(&sent, &fault);
        let newest = of_pol[..place].iter().max().unwrap();
        assert!(
            *newest >= (fault.heap + 100).min(HEAPS - 2),
            "{fault:?} after {newest}"
        );
    }
}

/// As far as a live simulator may look ahead: a heap costs the same however many are held.
#[test]
fn heaps_may_be_very_late_and_many() {
    let ledger = Ledger::default();
    let plan: FaultPlan = "late=0.5:1048576".parse().unwrap();
    let heaps = crate::sim::stream::heaps(2, 1 << 18);
    let sent: Vec<_> = plan.decorate(heaps, 1, 4096, &ledger).collect();
    assert_eq!(sent.len(), 1 << 19);
    let late = ledger.borrow().len();
    assert!(late > 1 << 17);
    // They all come at the end, in order.
    let [first, last] = [&sent[..sent.len() - late], &sent[sent.len() - late..]];
    for part in [first, last] {
        assert!(part.is_sorted_by_key(|heap| (heap.index, heap.pol)));
    }
}

#[test]
fn gaps_have_their_length_and_take_both_polarisations() {
    let (_, faults) = run("gap=0.002:50", 3);
    let lost: Vec<u64> = faults
        .iter()
        .filter(|f| f.pol == 0)
        .map(|f| f.heap)
        .collect();
    let other: Vec<u64> = faults
        .iter()
        .filter(|f| f.pol == 1)
        .map(|f| f.heap)
        .collect();
    assert_eq!(lost, other);
    let runs: Vec<usize> = lost
        .chunk_by(|a, b| a + 1 == *b)
        .map(<[u64]>::len)
        .collect();
    assert!(!runs.is_empty());
    let (last, before) = runs.split_last().unwrap();
    assert!(before.iter().all(|run| run % 50 == 0), "{runs:?}");
    assert!(last % 50 == 0 || lost.last() == Some(&(HEAPS - 1)));
}

#[test]
fn damage_is_what_receivers_call_it() {
    use spead::{DigitiserHeap, DigitiserRepr};
    // Samples and their bits: usual ones, then those of one byte and some more.
    for (samples, bits) in [
        (4096, 10),
        (1, 8),
        (1, 16),
        (4, 2),
        (2, 8),
        (8, 9),
        (32, 10),
    ] {
        let payload_length = samples * bits / 8;
        for damage in Damage::of_heaps(samples) {
            let mut packet = vec![0; 72 + payload_length];
            let repr = DigitiserRepr {
                heap_count: 2,
                timestamp: 2 * samples as u64,
                digitiser_id: 0,
                saturated: 0,
                payload_length,
            };
            repr.emit(packet.first_chunk_mut().unwrap());
            damage.apply(&mut packet);
            match DigitiserHeap::new_checked(&packet) {
                Err(error) => assert_eq!(error.cause(), damage.cause(), "{samples}"),
                Ok(heap) => {
                    assert_eq!(*damage, Damage::Timestamp, "{samples}");
                    assert_ne!(heap.timestamp().unwrap() % samples as u64, 0);
                }
            }
        }
    }
}

#[test]
fn mistakes_are_named() {
    let error = |text: &str| text.parse::<FaultPlan>().unwrap_err();
    assert!(matches!(error("drop"), FaultPlanError::Unknown(_)));
    assert!(matches!(error("lose=0.1"), FaultPlanError::Unknown(_)));
    assert!(matches!(error("drop=1.5"), FaultPlanError::Probability(..)));
    assert!(matches!(error("drop=NaN"), FaultPlanError::Probability(..)));
    assert!(matches!(error("gap=0.1"), FaultPlanError::Heaps(_)));
    assert!(matches!(error("gap=0.1:0"), FaultPlanError::Heaps(_)));
    assert!(matches!(error("drop=0.1:5"), FaultPlanError::Heaps(_)));
    let twice = error("drop=0.1, late=0.1, drop=0.9");
    assert_eq!(twice, FaultPlanError::Twice("drop=0.9".to_owned()));
}

/// A live simulator looks for its next heap until it has one.
#[test]
fn live_plans_leave_heaps() {
    let check = |text: &str| text.parse::<FaultPlan>().unwrap().check_live();
    for fine in [
        "",
        "drop=0.5,late=0.1,gap=0.001:1048576",
        "duplicate=1,reorder=1,corrupt=1",
        "late=0:2000000,gap=0:2000000",
    ] {
        assert_eq!(check(fine), Ok(()), "{fine}");
    }
    for fault in ["drop=1", "late=1:16384", "gap=1:3"] {
        let error = check(fault).unwrap_err();
        assert_eq!(error, FaultPlanError::Certain(fault.to_owned()));
        assert!(error.to_string().contains(fault), "{error}");
    }
    for fault in ["late=0.1:1048577", "gap=0.001:1048577"] {
        let error = check(fault).unwrap_err();
        assert_eq!(error, FaultPlanError::TooLong(fault.to_owned()));
        assert!(error.to_string().contains("1048576"), "{error}");
    }
    for faults in ["drop=0.9999999", "drop=0.999,gap=0.999:1000"] {
        let error = check(faults).unwrap_err();
        assert_eq!(error, FaultPlanError::TooMany(faults.to_owned()));
    }
}

proptest! {
    /// Every heap is sent once, but those that the ledger names as lost (never) or duplicated
    /// (twice).
    #[test]
    fn the_ledger_balances(seed: u64, chances in proptest::array::uniform5(0.0..0.2f64), gap in 0.0..0.005f64) {
        let [a, b, c, d, e] = chances;
        let plan = format!("drop={a},duplicate={b},reorder={c},late={d}:40,corrupt={e},gap={gap}:30");
        let (sent, faults) = run(&plan, seed);
        prop_assert_eq!(run(&plan, seed), (sent.clone(), faults.clone()));
        let mut times: BTreeMap<(u64, usize), (u32, bool)> = BTreeMap::new();
        for heap in &sent {
            let entry = times.entry((heap.index, heap.pol)).or_default();
            *entry = (entry.0 + 1, heap.damage.is_some());
        }
        let mut named = BTreeMap::new();
        for fault in &faults {
            prop_assert!(named.insert((fault.heap, fault.pol), fault.kind).is_none(), "{:?}", fault);
        }
        for index in 0..HEAPS {
            for pol in 0..2 {
                let expected = match named.get(&(index, pol)) {
                    Some(&"drop" | &"gap") => (0, false),
                    Some(&"duplicate") => (2, false),
                    Some(&"corrupt") => (1, true),
                    _ => (1, false),
                };
                let found = times.get(&(index, pol)).copied().unwrap_or_default();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
