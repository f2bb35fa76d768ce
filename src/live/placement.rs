//! Which thread runs on which CPU.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::StageIdle;
use crate::dpdk::IdlePolicy;

/// What there is to place.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// CPU of each rx lcore, if it matters.
    pub rx: Vec<Option<usize>>,
    /// CPU of the tx lcores, if it matters.
    pub tx: Option<usize>,
    /// tx lcores.
    pub tx_lcores: usize,
    /// Whether an lcore reads a capture.
    pub source: bool,
    /// Compute threads of the CPU backend, if their number matters.
    pub workers: Option<usize>,
}

/// Where everything runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Each rx lcore.
    pub rx: Vec<usize>,
    /// The engine's lcore.
    pub engine: usize,
    /// Each tx lcore.
    pub tx: Vec<usize>,
    /// The lcore that reads a capture.
    pub source: Option<usize>,
    /// Each compute thread of the CPU backend.
    pub workers: Vec<usize>,
    /// All other threads: control, metrics, drivers.
    pub housekeeping: Vec<usize>,
    /// An lcore polls if it has a CPU that no other lcore and no housekeeping runs on.
    pub idle: StageIdle,
    /// The same for the lcore that reads a capture.
    pub source_idle: IdlePolicy,
}

impl Placement {
    /// Places by `wishes`; what they leave open goes by turns to those of `allowed`, the CPUs of this process, that
    /// they do not name. The first of those is for housekeeping, and shared last. `allowed` is not empty.
    pub fn new(wishes: &Wishes, allowed: &[usize]) -> Self {
        let named = || wishes.rx.iter().chain([&wishes.tx]).flatten();
        let free: Vec<_> = allowed
            .iter()
            .copied()
            .filter(|cpu| !named().any(|other| other == cpu))
            .collect();
        // Nothing is left: all is shared.
        let free = if free.is_empty() {
            allowed.to_vec()
        } else {
            free
        };
        let mut turns = free[1..].iter().chain(&free[..1]).copied().cycle();
        let mut next = || turns.next().unwrap_or(free[0]);
        let engine = next();
        let rx: Vec<_> = wishes
            .rx
            .iter()
            .map(|cpu| cpu.unwrap_or_else(&mut next))
            .collect();
        let mut tx = || wishes.tx.unwrap_or_else(&mut next);
        let tx: Vec<_> = (0..wishes.tx_lcores).map(|_| tx()).collect();
        let source = wishes.source.then(&mut next);
        let lcores: Vec<_> = rx
            .iter()
            .chain([&engine])
            .chain(&tx)
            .chain(&source)
            .copied()
            .collect();
        let rest: Vec<_> = free
            .iter()
            .copied()
            .filter(|cpu| !lcores.contains(cpu))
            .collect();
        let housekeeping = match rest.first() {
            Some(&first) => vec![first],
            None => free,
        };
        let idle = |cpu: &usize| {
            let lcores = lcores.iter().filter(|other| *other == cpu).count();
            match lcores == 1 && !housekeeping.contains(cpu) {
                true => IdlePolicy::Poll,
                false => IdlePolicy::Share,
            }
        };
        let stages = StageIdle {
            rx: rx.iter().map(idle).collect(),
            engine: idle(&engine),
            tx: tx.iter().map(idle).collect(),
        };
        // The engine's lcore waits while its workers compute, so they may have its CPU.
        let mut for_workers = rest.get(1..).unwrap_or_default().to_vec();
        for_workers.push(engine);
        let workers = wishes.workers.unwrap_or(for_workers.len());
        Self {
            workers: for_workers.iter().copied().cycle().take(workers).collect(),
            idle: stages,
            source_idle: source.as_ref().map_or(IdlePolicy::Share, idle),
            housekeeping,
            rx,
            engine,
            tx,
            source,
        }
    }

    /// The CPUs of all lcores, in the order in which they are started.
    pub fn lcores(&self) -> Vec<usize> {
        let lcores = self.rx.iter().chain([&self.engine]).chain(&self.tx);
        lcores.chain(&self.source).copied().collect()
    }
}

/// Lets this thread, and those that it starts from now on, run on `cpus`.
pub fn run_on(cpus: &[usize]) -> nix::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use IdlePolicy::{Poll, Share};

    fn idle(rx: &[IdlePolicy], engine: IdlePolicy, tx: &[IdlePolicy]) -> StageIdle {
        let (rx, tx) = (rx.to_vec(), tx.to_vec());
        StageIdle { rx, engine, tx }
    }

    fn place(rx: &[Option<usize>], tx: Option<usize>, allowed: &[usize]) -> Placement {
        let wishes = Wishes {
            rx: rx.to_vec(),
            tx,
            tx_lcores: 1,
            ..Wishes::default()
        };
        Placement::new(&wishes, allowed)
    }

    #[test]
    fn with_cpus_enough_every_lcore_has_its_own() {
        let placed = place(&[None, None], None, &[0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(
            (placed.engine, &placed.rx[..], &placed.tx[..]),
            (1, &[2, 3][..], &[4][..])
        );
        assert_eq!(
            (placed.housekeeping, placed.workers),
            (vec![0], vec![5, 6, 1])
        );
        assert_eq!(placed.idle, idle(&[Poll, Poll], Poll, &[Poll]));
    }

    /// The controller gives one CPU to each of receive, send and the rest, and runs the process on the last alone.
    #[test]
    fn named_cpus_are_taken_also_from_outside() {
        let placed = place(&[Some(4)], Some(5), &[6]);
        assert_eq!(
            (placed.engine, &placed.rx[..], &placed.tx[..]),
            (6, &[4][..], &[5][..])
        );
        assert_eq!((placed.housekeeping, placed.workers), (vec![6], vec![6]));
        // Control shares the engine's CPU: the engine naps, and nobody else.
        assert_eq!(placed.idle, idle(&[Poll], Share, &[Poll]));
        let placed = place(&[Some(4)], Some(5), &[6, 7]);
        assert_eq!(
            (placed.engine, placed.housekeeping, placed.idle),
            (7, vec![6], idle(&[Poll], Poll, &[Poll]))
        );
    }

    #[test]
    fn too_few_are_shared() {
        let placed = place(&[None, None], None, &[0, 1]);
        assert_eq!(
            (placed.engine, &placed.rx[..], &placed.tx[..]),
            (1, &[0, 1][..], &[0][..])
        );
        assert_eq!(
            (placed.idle, placed.housekeeping),
            (idle(&[Share, Share], Share, &[Share]), vec![0, 1])
        );
        let placed = place(&[Some(0)], Some(0), &[0]);
        assert_eq!(
            (placed.lcores(), placed.idle),
            (vec![0, 0, 0], idle(&[Share], Share, &[Share]))
        );
    }
}
