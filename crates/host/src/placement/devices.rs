//! Which NIC and which GPU an engine uses.

use super::{EnginePlan, GpuChoice, Wishes};
use crate::topology::Machine;

/// What an engine's devices decide.
pub(super) struct Chosen {
    /// Which of the machine's NICs, those received on first.
    pub nics: Vec<usize>,
    /// NUMA node that is near, if anything says.
    pub node: Option<usize>,
}

/// The devices of engines. Those that name no interface are dealt the NICs that are fit for data,
/// one of each card first.
pub(super) fn choose(machine: &Machine, engines: &[Wishes]) -> Vec<Chosen> {
    let function = |index: &usize| {
        let address = &machine.nics[*index].pci.address;
        let slot = address
            .rsplit_once('.')
            .map_or(&address[..], |parts| parts.0);
        (address[slot.len()..].to_owned(), slot.to_owned())
    };
    let mut fit: Vec<_> = (0..machine.nics.len())
        .filter(|&index| machine.nics[index].is_for_data())
        .collect();
    fit.sort_by_key(function);
    let engine = |(number, wishes): (usize, &Wishes)| {
        let named = wishes.recv_interfaces.iter().chain(&wishes.send_interfaces);
        let mut nics: Vec<_> = named
            .filter_map(|name| {
                let mut nics = machine.nics.iter();
                nics.position(|nic| nic.name == *name || nic.pci.address == *name)
            })
            .collect();
        if wishes.recv_interfaces.is_empty() && wishes.send_interfaces.is_empty() && !fit.is_empty()
        {
            nics.push(fit[number % fit.len()]);
        }
        let mut seen = Vec::new();
        nics.retain(|nic| {
            !seen.contains(nic) && {
                seen.push(*nic);
                true
            }
        });
        let node = nics.iter().find_map(|&nic| machine.nics[nic].pci.node);
        let gpu = || machine.gpus.get(number % machine.gpus.len().max(1));
        Chosen {
            node: node.or_else(|| gpu()?.pci.node),
            nics,
        }
    };
    engines.iter().enumerate().map(engine).collect()
}

/// The best GPU for an engine on `node` with these NICs: one of that node, behind another host
/// bridge than the NIC, that fewer engines have.
pub(super) fn gpu(
    machine: &Machine,
    nics: &[usize],
    node: usize,
    before: &[EnginePlan],
) -> Option<GpuChoice> {
    let shares_bridge = |index: usize| {
        let bridge = &machine.gpus[index].pci.root;
        nics.iter()
            .any(|&nic| machine.nics[nic].pci.root == *bridge)
    };
    let rank = |&index: &usize| {
        let remote = machine.gpus[index].pci.node.is_some_and(|of| of != node);
        let used = before.iter().flat_map(|engine| &engine.gpu);
        let used = used.filter(|gpu| gpu.index == index).count();
        (remote, shares_bridge(index), used, index)
    };
    let index = (0..machine.gpus.len()).min_by_key(rank)?;
    let (remote, shared, used, _) = rank(&index);
    let bridge = match (nics.is_empty(), shared) {
        (true, _) => "",
        (false, true) => ", behind the NIC's own host bridge",
        (false, false) => ", behind another host bridge than the NIC",
    };
    let place = if remote {
        "of another node"
    } else {
        "of the same node"
    };
    let others = match used {
        0 => String::new(),
        1 => ", shared with one engine".to_owned(),
        _ => format!(", shared with {used} engines"),
    };
    Some(GpuChoice {
        index,
        why: format!("{place}{bridge}{others}"),
    })
}
