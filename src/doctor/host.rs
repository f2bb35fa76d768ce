//! What the kernel says of its interfaces.

use std::fs;
use std::path::Path;

use super::evidence::InterfaceFacts;
use super::finding::Ailment;
use crate::ports::{Driver, Interface, InterfaceError, addresses, without_driver};

/// Counters of an interface whose packets nobody gets.
const REFUSED: [&str; 3] = ["rx_dropped", "rx_length_errors", "rx_crc_errors"];

/// An interface as it was given, and what it is.
#[derive(Debug)]
pub struct Named {
    /// As it was given.
    pub given: String,
    /// What it is, or why it cannot be used.
    pub found: Result<Interface, InterfaceError>,
}

impl Named {
    /// All that were given.
    pub fn all(names: &[String]) -> Vec<Self> {
        let named = |given: &String| Self {
            found: Interface::find(given),
            given: given.clone(),
        };
        // Which driver an engine would choose is not what was asked.
        let quiet = tracing::subscriber::NoSubscriber::new();
        tracing::subscriber::with_default(quiet, || names.iter().map(named).collect())
    }

    /// Why it cannot be used, if it cannot.
    pub fn refusal(&self) -> Option<(Ailment, String)> {
        let error = self.found.as_ref().err()?;
        let code = match error {
            InterfaceError::Down { .. } => Ailment::InterfaceDown,
            InterfaceError::NoIpv4 { .. } => Ailment::NoAddress,
            InterfaceError::Locate(_) | InterfaceError::NoSuchAddress { .. } => {
                Ailment::NoSuchInterface
            }
            _ => Ailment::UnusableInterface,
        };
        Some((code, error.to_string()))
    }

    /// The kernel's interface, if there is one that is up.
    pub fn of_kernel(&self) -> Option<&Interface> {
        let found = self.found.as_ref().ok()?;
        (found.index != 0).then_some(found)
    }
}

/// Reads files below a folder, which is `/` but in tests.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a>(pub &'a Path);

impl Files<'_> {
    fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        let text = fs::read_to_string(self.0.join(path)).ok()?;
        text.trim().parse().ok()
    }

    /// All interfaces, with what they have counted so far.
    pub fn interfaces(&self) -> Vec<InterfaceFacts> {
        let entries = fs::read_dir(self.0.join("sys/class/net"));
        let names = entries.into_iter().flatten().flatten();
        let mut names: Vec<_> = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names.into_iter().map(|name| self.interface(name)).collect()
    }

    fn interface(&self, name: String) -> InterfaceFacts {
        let of = |file: &str| format!("sys/class/net/{name}/{file}");
        let count = |counter: &str| {
            let number = self.number::<u64>(&of(&format!("statistics/{counter}")));
            number.unwrap_or(0)
        };
        let filter = |interface: &str| {
            let path = format!("proc/sys/net/ipv4/conf/{interface}/rp_filter");
            self.number::<u8>(&path).unwrap_or(0)
        };
        InterfaceFacts {
            carrier: self.number::<u8>(&of("carrier")).map(|up| up == 1),
            mtu: self.number(&of("mtu")),
            // The larger of both counts (ip-sysctl.rst of the kernel).
            reverse_path: filter(&name).max(filter("all")),
            packets: count("rx_packets"),
            refused: REFUSED.iter().map(|counter| count(counter)).sum(),
            name,
            ..InterfaceFacts::default()
        }
    }

    /// Packets that the reverse path filter has dropped so far.
    pub fn reverse_path_drops(&self) -> Option<u64> {
        let text = fs::read_to_string(self.0.join("proc/net/netstat")).ok()?;
        let line = |which: usize| {
            let lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
            lines.skip(which).map(str::split_whitespace).next()
        };
        let mut pairs = line(0)?.zip(line(1)?);
        let (_, value) = pairs.find(|(name, _)| *name == "IPReversePathFilter")?;
        value.parse().ok()
    }
}

/// What differs from `before` to `after`, with what the interfaces are used for.
pub fn since(
    before: &[InterfaceFacts],
    after: Vec<InterfaceFacts>,
    receive: &[Named],
    send: &[Named],
) -> Vec<InterfaceFacts> {
    let all_addresses = addresses().unwrap_or_default();
    let addresses = |name: &str| {
        let ours = all_addresses.iter().filter(|(owner, _)| owner == name);
        ours.map(|(_, ip)| *ip).collect()
    };
    let used = |named: &[Named], name: &str| {
        let mut named = named.iter();
        let found = named.find(|named| is(named, name));
        found.map(|named| named.given.clone())
    };
    let facts = after.into_iter().map(|facts| {
        let old = before.iter().find(|old| old.name == facts.name);
        let (packets, refused) = old.map_or((0, 0), |old| (old.packets, old.refused));
        let shared = receive.iter().any(|named| {
            let kernel = named.of_kernel();
            kernel.is_some_and(|i| i.name == facts.name && i.driver == Driver::Mlx5)
        });
        InterfaceFacts {
            packets: facts.packets.saturating_sub(packets),
            refused: facts.refused.saturating_sub(refused),
            receives: used(receive, &facts.name),
            sends: used(send, &facts.name).is_some(),
            addresses: addresses(&facts.name),
            shared,
            ..facts
        }
    });
    facts.collect()
}

/// Whether a name as given is that of the interface, also where it cannot be used.
fn is(named: &Named, name: &str) -> bool {
    match &named.found {
        Ok(interface) => interface.name == name,
        Err(_) => without_driver(&named.given) == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/class/net/eth0/carrier", "0\n");
        write("sys/class/net/eth0/mtu", "1500\n");
        write("sys/class/net/eth0/statistics/rx_packets", "12\n");
        write("sys/class/net/eth0/statistics/rx_dropped", "3\n");
        write("sys/class/net/eth0/statistics/rx_crc_errors", "4\n");
        write("proc/sys/net/ipv4/conf/all/rp_filter", "2\n");
        write("proc/sys/net/ipv4/conf/eth0/rp_filter", "1\n");
        write(
            "proc/net/netstat",
            "TcpExt: SyncookiesSent IPReversePathFilter Other\nTcpExt: 1 22 3\nIpExt: A\nIpExt: 4\n",
        );
        let files = Files(folder.path());
        assert_eq!(files.reverse_path_drops(), Some(22));
        let facts = files.interfaces();
        let expected = InterfaceFacts {
            name: "eth0".to_owned(),
            carrier: Some(false),
            mtu: Some(1500),
            reverse_path: 2,
            packets: 12,
            refused: 7,
            ..InterfaceFacts::default()
        };
        assert_eq!(facts, [expected]);
    }

    #[test]
    fn names_that_are_none_are_refused_with_what_there_is() {
        let named = Named::all(&["none0".to_owned(), "lo".to_owned()]);
        let (code, text) = named[0].refusal().unwrap();
        assert_eq!(code, Ailment::NoSuchInterface);
        assert!(text.contains("none0") && text.contains("lo"), "{text}");
        assert_eq!(named[1].refusal(), None);
        assert_eq!(named[1].of_kernel().unwrap().name, "lo");
    }
}
