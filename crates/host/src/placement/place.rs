//! Which CPU each thread of an engine gets.
//!
//! What is followed, from B. Merry's measurements on an EPYC Milan (JATIS 2023, section 5.4): the
//! threads of one engine alone go to last-level caches of their own, since each cache's way to
//! memory is narrow; several engines get caches each, so that they do not meet; memory, NIC, GPU
//! and CPUs are of one socket.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use ground::IdlePolicy;

use super::{FULL, Lcore, Role, Thread, Wishes};
use crate::topology::{CpuList, Distances, Machine};

/// What can be had of a CPU, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    /// A core that nothing else is on, in the engine's caches.
    Home,
    /// One in its NUMA node.
    Near,
    /// One of another node.
    Far,
    /// The sibling of a busy one.
    Sibling,
    /// A CPU that something else runs on.
    Shared,
    /// What belongs to another engine.
    Taken,
}

/// Places the threads of several engines, one after another.
pub(super) struct CpuPlacer<'a> {
    machine: &'a Machine,
    distances: &'a Distances<'a>,
    /// CPUs that may be used.
    allowed: CpuList,
    /// CPUs that the kernel keeps for what is not isolated, if it isolates any.
    common: CpuList,
    /// Threads on each CPU.
    users: BTreeMap<usize, usize>,
    /// Share of time of the lcores on each CPU that may be shared.
    shared: BTreeMap<usize, f64>,
}

/// Where an engine is at home.
#[derive(Clone, Debug)]
pub(super) struct Home {
    /// NUMA node.
    pub node: usize,
    /// Its CPUs: of the last-level caches that are its share.
    pub cpus: CpuList,
    /// CPUs of other engines' shares.
    pub others: CpuList,
}

/// The threads of one engine.
pub(super) struct Placed {
    pub lcores: Vec<Lcore>,
    pub workers: Vec<Thread>,
    pub housekeeping: CpuList,
    pub housekeeping_why: String,
}

impl<'a> CpuPlacer<'a> {
    pub fn new(machine: &'a Machine, distances: &'a Distances<'a>, allowed: &CpuList) -> Self {
        let common = match allowed.and(&machine.isolated).is_empty() {
            true => CpuList::default(),
            false => allowed.without(&machine.isolated),
        };
        Self {
            machine,
            distances,
            allowed: allowed.clone(),
            common,
            users: BTreeMap::new(),
            shared: BTreeMap::new(),
        }
    }

    /// CPUs of `node` that lcores may have, by last-level cache.
    pub fn caches(&self, node: usize) -> Vec<CpuList> {
        let free = self.allowed.without(&self.common);
        let of = |l3| {
            let ours = |cpu: &usize| {
                let cpu = self.machine.cpus.get(cpu);
                cpu.is_some_and(|cpu| cpu.l3 == l3 && cpu.node == node)
            };
            free.iter().filter(ours).collect::<CpuList>()
        };
        let caches = self.machine.l3s(node).into_iter().map(of);
        caches.filter(|cpus| !cpus.is_empty()).collect()
    }

    /// `node` if any of its CPUs may be used, else the one with most of those that may.
    pub fn usable(&self, node: Option<usize>) -> usize {
        let count = |node: usize| {
            let cpus = self.caches(node);
            cpus.iter().map(CpuList::len).sum::<usize>()
        };
        match node {
            Some(node) if count(node) > 0 => node,
            _ => {
                let nodes = self.machine.nodes.keys().copied();
                let most = nodes.max_by_key(|&node| (count(node), std::cmp::Reverse(node)));
                most.unwrap_or(0)
            }
        }
    }

    /// What the engine `number` of `together` on a node has of its CPUs: caches, or cores if there
    /// are fewer caches.
    pub fn share(&self, node: usize, number: usize, together: usize) -> CpuList {
        let caches = self.caches(node);
        if caches.len() >= together {
            let each = caches.len() / together;
            let ours = &caches[number * each..(number + 1) * each];
            return ours.iter().flat_map(CpuList::iter).collect();
        }
        let mut cores: Vec<CpuList> = Vec::new();
        for cpus in &caches {
            for cpu in cpus.iter() {
                let core = self.machine.siblings(cpu).and(cpus);
                if core.first() == Some(cpu) {
                    cores.push(core);
                }
            }
        }
        let ours = &cores[number * cores.len() / together..(number + 1) * cores.len() / together];
        ours.iter().flat_map(CpuList::iter).collect()
    }

    /// Cores among `cpus` that no thread is on.
    fn whole_cores(&self, cpus: &CpuList) -> usize {
        let whole = cpus.iter().filter(|&cpu| {
            let siblings = self.machine.siblings(cpu).and(cpus);
            siblings.first() == Some(cpu) && !self.is_busy(&siblings)
        });
        whole.count()
    }

    fn is_busy(&self, cpus: &CpuList) -> bool {
        cpus.iter().any(|cpu| self.users.contains_key(&cpu))
    }

    /// Places an engine's threads. CPUs that its wishes name are taken as they are.
    pub fn place(&mut self, wishes: &Wishes, home: &Home, named: &CpuList) -> Placed {
        for cpu in named.iter() {
            self.users.entry(cpu).or_insert(0);
        }
        let unnamed = wishes.rx.iter().filter(|cpu| cpu.is_none()).count()
            + if wishes.tx.is_none() && !wishes.shares_cpus {
                wishes.tx_lcores
            } else {
                0
            }
            + usize::from(wishes.source)
            + 1;
        let (housekeeping, mut why) = self.housekeeping(home, unnamed);
        for cpu in housekeeping.iter() {
            // Counts for less than an lcore, but keeps a core from being whole.
            self.users.entry(cpu).or_insert(0);
        }
        let mut lcores: Vec<Lcore> = Vec::new();
        for (role, wish) in roles(wishes) {
            let lcore = match wish {
                Some((cpu, option)) => Lcore {
                    name: role.name(wishes.tx_lcores),
                    role,
                    cpu,
                    idle: IdlePolicy::Poll,
                    why: format!("named by {option}"),
                },
                None => {
                    let beside = self.beside_others(role, wishes, home, &lcores);
                    beside.unwrap_or_else(|| self.lcore(role, wishes, home, &housekeeping, &lcores))
                }
            };
            let alone = self.users.get(&lcore.cpu).is_none_or(|others| *others == 0);
            let joins = alone || self.shared.contains_key(&lcore.cpu);
            if wishes.shares_cpus && role.is_modest() && wish.is_none() && joins {
                *self.shared.entry(lcore.cpu).or_insert(0.0) += role.share();
            }
            *self.users.entry(lcore.cpu).or_insert(0) += 1;
            lcores.push(lcore);
        }
        let engine = lcores.iter().find(|lcore| lcore.role == Role::Engine);
        let engine = engine.map_or(0, |lcore| lcore.cpu);
        let housekeeping = match housekeeping.is_empty() {
            false => housekeeping,
            true => {
                let (cpus, reason) = self.spare(home, engine);
                why = reason;
                cpus
            }
        };
        let workers = self.workers(wishes, home, &housekeeping, engine);
        Placed {
            lcores,
            workers,
            housekeeping,
            housekeeping_why: why,
        }
    }

    /// CPUs kept for control, metrics and drivers; none if `lcores` leave none.
    fn housekeeping(&self, home: &Home, lcores: usize) -> (CpuList, String) {
        if !self.common.is_empty() {
            let on_node = |cpu: &usize| {
                self.machine
                    .cpus
                    .get(cpu)
                    .is_some_and(|c| c.node == home.node)
            };
            let near: CpuList = self.common.iter().filter(on_node).collect();
            return match near.is_empty() {
                false => (near, format!("not isolated, on node {}", home.node)),
                true => (self.common.clone(), "not isolated".to_owned()),
            };
        }
        if self.whole_cores(&home.cpus) <= lcores {
            return (CpuList::default(), String::new());
        }
        let mut free = home.cpus.iter().filter(|&cpu| {
            let siblings = self.machine.siblings(cpu).and(&home.cpus);
            !self.is_busy(&siblings)
        });
        let core = free
            .next()
            .map(|cpu| self.machine.siblings(cpu).and(&self.allowed));
        let why = "the lowest core, where the kernel's own work is too";
        (core.unwrap_or_default(), why.to_owned())
    }

    /// Where housekeeping goes if no core is left: a sibling that is free, or the engine's CPU,
    /// which mostly waits.
    fn spare(&mut self, home: &Home, engine: usize) -> (CpuList, String) {
        let free = |cpu: &usize| !self.users.contains_key(cpu);
        let siblings = self.machine.siblings(engine).and(&self.allowed);
        if let Some(cpu) = siblings.iter().find(free) {
            self.users.insert(cpu, 1);
            let why = "no core is left: the sibling of the engine's lcore, which mostly waits";
            return ([cpu].into_iter().collect(), why.to_owned());
        }
        match home.cpus.iter().find(free) {
            Some(cpu) => (
                [cpu].into_iter().collect(),
                "no core is left: a sibling".to_owned(),
            ),
            None => {
                let why = "no CPU is left: with the engine's lcore, which mostly waits";
                ([engine].into_iter().collect(), why.to_owned())
            }
        }
    }

    /// A CPU where an lcore that mostly waits joins others that do, if that is wished: those of its
    /// own engine, else, where that has no core left, those that leave the least.
    fn beside_others(
        &self,
        role: Role,
        wishes: &Wishes,
        home: &Home,
        placed: &[Lcore],
    ) -> Option<Lcore> {
        if !(wishes.shares_cpus && role.is_modest()) {
            return None;
        }
        let node_of = |cpu: usize| self.machine.cpus.get(&cpu).map(|at| at.node);
        // None but lcores that share it are on such a CPU.
        let room = self.shared.iter().filter(|&(&cpu, &taken)| {
            taken + role.share() <= FULL && node_of(cpu) == Some(home.node)
        });
        let (ours, others): (Vec<_>, Vec<_>) =
            room.partition(|&(&cpu, _)| placed.iter().any(|lcore| lcore.cpu == cpu));
        let others = match self.whole_cores(&home.cpus) {
            0 => others,
            _ => Vec::new(),
        };
        let fullest = |cpus: Vec<(&usize, &f64)>| {
            let fullest = cpus.into_iter().max_by(|a, b| a.1.total_cmp(b.1));
            fullest.map(|(&cpu, &taken)| (cpu, taken))
        };
        let (cpu, taken) = fullest(ours).or_else(|| fullest(others))?;
        let why = format!(
            "with lcores that are at work for {:.0} % of the time, as this one is for {:.0} %",
            100.0 * taken,
            100.0 * role.share()
        );
        Some(Lcore {
            name: role.name(wishes.tx_lcores),
            role,
            cpu,
            idle: IdlePolicy::Share,
            why: match wishes.interface(role) {
                Some(interface) => format!("{interface}; {why}"),
                None => why,
            },
        })
    }

    /// The best CPU for an lcore.
    fn lcore(
        &self,
        role: Role,
        wishes: &Wishes,
        home: &Home,
        housekeeping: &CpuList,
        placed: &[Lcore],
    ) -> Lcore {
        let l3_of = |cpu: usize| self.machine.cpus.get(&cpu).map(|cpu| (cpu.node, cpu.l3));
        let in_cache = |cpu| placed.iter().filter(|l| l3_of(l.cpu) == l3_of(cpu)).count();
        let apart = |cpu| -> f64 {
            placed
                .iter()
                .map(|l| self.distances.between(l.cpu, cpu))
                .sum()
        };
        // The lowest core last: the kernel's own work is there.
        let lowest = self.allowed.first().map(|cpu| self.machine.core(cpu));
        let rank = |cpu: usize| {
            let mut tier = self.tier(cpu, home, housekeeping);
            if wishes.shares_cpus && tier == Tier::Taken && !self.users.contains_key(&cpu) {
                // Engines that share CPUs leave some of theirs.
                tier = Tier::Near;
            }
            let users = self.users.get(&cpu).copied().unwrap_or(0);
            (
                tier,
                users,
                in_cache(cpu),
                apart(cpu),
                Some(self.machine.core(cpu)) == lowest,
                cpu,
            )
        };
        let better = |a: &_, b: &_| compare(rank(*a), rank(*b));
        let cpu = self.allowed.iter().min_by(better).unwrap_or(0);
        let (tier, _, near, ..) = rank(cpu);
        let place = match self.machine.cpus.get(&cpu) {
            Some(at) => format!("node {}, cache of CPU {}", at.node, at.l3),
            None => String::new(),
        };
        let why = match tier {
            Tier::Home if near == 0 => format!("{place}: none of this engine's lcores is there"),
            Tier::Home => {
                format!("{place}: a whole core, {near} of this engine's lcores beside it")
            }
            Tier::Near => format!("{place}: no whole core is left in the engine's caches"),
            Tier::Far => format!("{place}: no whole core is left on node {}", home.node),
            Tier::Sibling => format!("{place}: no whole core is left; its sibling is busy"),
            Tier::Shared | Tier::Taken => format!("{place}: no CPU is left, this one is shared"),
        };
        let why = match wishes.interface(role) {
            Some(interface) => format!("{interface}; {why}"),
            None => why,
        };
        Lcore {
            name: role.name(wishes.tx_lcores),
            role,
            cpu,
            idle: IdlePolicy::Poll,
            why,
        }
    }

    fn tier(&self, cpu: usize, home: &Home, housekeeping: &CpuList) -> Tier {
        let others = home.others.contains(cpu);
        if self.users.contains_key(&cpu) || housekeeping.contains(cpu) || self.common.contains(cpu)
        {
            return if others { Tier::Taken } else { Tier::Shared };
        }
        if others {
            return Tier::Taken;
        }
        if self.is_busy(&self.machine.siblings(cpu)) {
            return Tier::Sibling;
        }
        match self.machine.cpus.get(&cpu) {
            _ if home.cpus.contains(cpu) => Tier::Home,
            Some(at) if at.node == home.node => Tier::Near,
            _ => Tier::Far,
        }
    }

    /// Compute threads for the CPU backend: one on each core of the engine's that is left, and on
    /// its lcore's CPU.
    fn workers(
        &mut self,
        wishes: &Wishes,
        home: &Home,
        housekeeping: &CpuList,
        engine: usize,
    ) -> Vec<Thread> {
        let left = home.cpus.iter().filter(|&cpu| {
            let siblings = self.machine.siblings(cpu);
            !self.is_busy(&siblings)
                && siblings.and(housekeeping).is_empty()
                && siblings.and(&home.cpus).first() == Some(cpu)
        });
        // The engine's lcore waits while its workers compute, so they may have its CPU.
        let cpus: Vec<_> = left.chain([engine]).collect();
        let count = wishes.workers.unwrap_or(cpus.len());
        for &cpu in &cpus[..cpus.len() - 1] {
            self.users.entry(cpu).or_insert(0);
        }
        let workers = cpus.iter().copied().cycle().take(count).enumerate();
        let worker = |(number, cpu)| Thread {
            name: format!("cpu-{number}"),
            cpu,
            why: match cpu == engine {
                true => "with the engine's lcore, which waits meanwhile".to_owned(),
                false => "a core that is left".to_owned(),
            },
        };
        workers.map(worker).collect()
    }
}

type Rank = (Tier, usize, usize, f64, bool, usize);

fn compare(a: Rank, b: Rank) -> Ordering {
    let first = (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2));
    first
        .then(a.3.total_cmp(&b.3))
        .then((a.4, a.5).cmp(&(b.4, b.5)))
}

/// The lcores of an engine in the order in which they are started, with the CPUs that options name.
fn roles(wishes: &Wishes) -> Vec<(Role, Option<(usize, &'static str)>)> {
    let rx = wishes.rx.iter().enumerate();
    let rx = rx.map(|(lane, cpu)| (Role::Rx(lane), cpu.map(|cpu| (cpu, "--recv-affinity"))));
    let tx = (0..wishes.tx_lcores).map(|lane| {
        (
            Role::Tx(lane),
            wishes.tx.map(|cpu| (cpu, "--send-affinity")),
        )
    });
    let source = wishes.source.then_some((Role::Source, None));
    rx.chain([(Role::Engine, None)])
        .chain(tx)
        .chain(source)
        .collect()
}
