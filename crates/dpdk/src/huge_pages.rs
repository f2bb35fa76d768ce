//! Huge pages of this host: how many are free, who has the others, and how there come to be more.

use std::fs;
use std::path::{Path, PathBuf};

/// Where DPDK's memory comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Huge pages if enough are free.
    #[default]
    Auto,
    /// Huge pages or nothing.
    Require,
    /// Plain memory. Virtual devices work; NICs do not.
    Never,
}

/// Sizes of huge pages, and how many of each there are and are free.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages";
/// What has the same of the host and of each of its nodes.
const SYSTEM: &str = "/sys";
/// Where the number of huge pages of 2 MiB is set. `vm.nr_hugepages` is that of the kernel's
/// default size, which may be 1 GiB.
pub(super) const MORE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Huge pages of 2 MiB that programs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenPages {
    /// Of the node on which they have most.
    pub most: usize,
    /// Nodes of the host.
    pub nodes: usize,
}

impl TakenPages {
    /// Those of this host.
    pub(super) fn of_host() -> Self {
        Self::of(Path::new(SYSTEM))
    }

    /// Those of the machine with this folder.
    fn of(system: &Path) -> Self {
        let taken = |sizes: PathBuf| {
            let count = |file: &str| -> Option<usize> {
                let file = sizes.join("hugepages-2048kB").join(file);
                fs::read_to_string(file).ok()?.trim().parse().ok()
            };
            Some(count("nr_hugepages")?.saturating_sub(count("free_hugepages")?))
        };
        // Nodes that are nothing but a device's memory have no pages.
        let entries = fs::read_dir(system.join("devices/system/node"));
        let nodes = entries.into_iter().flatten().flatten();
        let nodes = nodes.filter_map(|node| taken(node.path().join("hugepages")));
        let mut nodes: Vec<_> = nodes.collect();
        // Kernels that know of no nodes have the numbers of the host alone.
        if nodes.is_empty() {
            nodes.extend(taken(system.join("kernel/mm/hugepages")));
        }
        Self {
            most: nodes.iter().copied().max().unwrap_or(0),
            nodes: nodes.len().max(1),
        }
    }

    /// How there comes to be room for so much more, on whichever node it is wanted: for good, and
    /// until the next boot. The number that is set is for all programs together, and the kernel
    /// spreads it over the nodes. A shell opens files without the rights of `sudo echo`.
    pub(super) fn room_for(&self, mib: usize) -> String {
        let pages = self.most + mib.div_ceil(2);
        let all = pages * self.nodes;
        let which = match self.nodes {
            1 => String::new(),
            nodes => format!(" on each of {nodes} nodes"),
        };
        format!(
            "have {pages} huge pages of 2 MiB{which}: HUGE_PAGES_2M={all} in /etc/karoo/host.conf, then systemctl restart karoo-host; \
             or until the next boot: echo {all} | sudo tee {MORE_PAGES}"
        )
    }
}

/// How there come to be free huge pages of so much, beside those that other programs have.
pub fn have_huge_pages(mib: usize) -> String {
    TakenPages::of_host().room_for(mib)
}

/// Waits until no other program is between seeing free huge pages and having them, and keeps others
/// waiting while it lives. Programs in other network namespaces see another folder, and do not
/// wait; neither does one where it cannot be locked.
pub(super) fn turn_at_huge_pages() -> Option<fs::File> {
    let folder = fs::File::open(HUGE_PAGES).ok()?;
    if let Err(fs::TryLockError::WouldBlock) = folder.try_lock() {
        tracing::info!("waits for another program, which is starting DPDK");
        folder.lock().ok()?;
    }
    Some(folder)
}

/// Free huge pages of the size that has most of them, in MiB: EAL takes memory of every size, but
/// one pool's zone comes out of one.
pub fn free_huge_pages_mib() -> usize {
    let Ok(sizes) = fs::read_dir(HUGE_PAGES) else {
        return 0;
    };
    sizes
        .flatten()
        .filter_map(|size| {
            let name = size.file_name().into_string().ok()?;
            let kib: usize = name
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            let free = fs::read_to_string(size.path().join("free_hugepages")).ok()?;
            Some(free.trim().parse::<usize>().ok()? * kib / 1024)
        })
        .max()
        .unwrap_or(0)
}

/// Plain memory that takes the place of so much in huge pages: there, what is larger than a page of
/// 4 KiB begins on one of its own, and so takes up to twice as much. What is not used is only
/// reserved.
pub fn plain_mib(huge_mib: usize) -> usize {
    huge_mib.saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number that is set is that of all programs together.
    #[test]
    fn huge_pages_of_other_programs_stay_theirs() {
        let system = tempfile::tempdir().unwrap();
        let none = TakenPages { most: 0, nodes: 1 };
        assert_eq!(TakenPages::of(system.path()), none);
        let more = |sizes: &str, all: &str, free: &str| {
            let size = system.path().join(sizes).join("hugepages-2048kB");
            fs::create_dir_all(&size).unwrap();
            fs::write(size.join("nr_hugepages"), all).unwrap();
            fs::write(size.join("free_hugepages"), free).unwrap();
            TakenPages::of(system.path())
        };
        let host = more("kernel/mm/hugepages", "1024\n", "1000\n");
        assert_eq!(host, TakenPages { most: 24, nodes: 1 });
        let one = more("devices/system/node/node0/hugepages", "1024\n", "324\n");
        let said = one.room_for(101);
        assert!(said.contains("have 751 huge pages of 2 MiB: HUGE_PAGES_2M=751 in"));
        // What is set is spread over the nodes, so that each has what the fullest is to have.
        let two = more("devices/system/node/node1/hugepages", "512\n", "500\n");
        let said = two.room_for(101);
        assert!(
            said.contains("have 751 huge pages of 2 MiB on each of 2 nodes: HUGE_PAGES_2M=1502 in")
                && said.contains("echo 1502 | sudo tee"),
            "{said}"
        );
    }
}
