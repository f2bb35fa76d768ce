//! Pairs of CPUs, one of each kind that a machine has.

use std::fs::read_to_string;

/// What a CPU shares with others, as the kernel names it.
#[derive(PartialEq)]
struct Cpu {
    number: usize,
    package: String,
    core: String,
    l3: String,
}

fn cpu(number: usize) -> Cpu {
    let read = |name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/{name}");
        read_to_string(path).unwrap_or_default().trim().to_string()
    };
    Cpu {
        number,
        package: read("topology/physical_package_id"),
        core: read("topology/core_cpus_list"),
        l3: read("cache/index3/shared_cpu_list"),
    }
}

/// Writer, reader, and what they share. CPU 0, which does most of a system's own work, is left out
/// where there are enough others.
pub fn of_this_machine() -> Vec<(usize, usize, String)> {
    let ids = core_affinity::get_core_ids().unwrap_or_default();
    let mut cpus: Vec<Cpu> = ids.iter().map(|id| cpu(id.id)).collect();
    if cpus.len() > 4 {
        let first = cpus.remove(0);
        cpus.retain(|cpu| cpu.core != first.core || cpu.core.is_empty());
    }
    let Some((first, rest)) = cpus.split_first() else {
        return Vec::new();
    };
    type Rule = fn(&Cpu, &Cpu) -> bool;
    let kinds: [(&str, Rule); 4] = [
        ("two threads of one core", |a, b| {
            a.core == b.core && !a.core.is_empty()
        }),
        ("two cores of one L3", |a, b| {
            a.core != b.core && a.l3 == b.l3
        }),
        ("two L3 of one package", |a, b| {
            a.l3 != b.l3 && a.package == b.package
        }),
        ("two packages", |a, b| a.package != b.package),
    ];
    let mut pairs: Vec<(usize, usize, String)> = kinds
        .iter()
        .filter_map(|(kind, rule)| {
            let other = rest.iter().find(|other| rule(first, other))?;
            Some((
                first.number,
                other.number,
                format!("{kind}, says the kernel"),
            ))
        })
        .collect();
    // What virtual machines say of caches is often not so: a far pair as well.
    if let Some(last) = rest.last().filter(|_| rest.len() > 4)
        && pairs.iter().all(|pair| pair.1 != last.number)
    {
        pairs.push((first.number, last.number, "the first and the last".into()));
    }
    pairs
}
