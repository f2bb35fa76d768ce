//! Links of ports: whether they are up, and how often they went down.

use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dpdk::Port;

use super::interface::Interface;

/// Ports under watch; a cheap handle.
#[derive(Clone, Debug)]
pub struct Links {
    watched: Arc<[Watched]>,
    /// Whether what changes is logged.
    says: bool,
}

/// One of them.
#[derive(Debug)]
struct Watched {
    port: Port,
    /// Its interface, where the kernel tells of that: DPDK's AF_PACKET driver takes every link to
    /// be up.
    of_kernel: Option<OfKernel>,
    up: AtomicBool,
    /// Whether its interface was found to be another.
    replaced: AtomicBool,
    downs: AtomicU64,
}

/// An interface of the kernel.
#[derive(Debug)]
struct OfKernel {
    folder: String,
    /// Its number at the start. From the same place as later, which may be of another network
    /// namespace than the process is in.
    index: Option<u64>,
    /// How often the kernel had seen it go down at the start.
    before: u64,
}

/// How a link is.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    /// Whether it is up; `None` where nobody can tell at the moment.
    up: Option<bool>,
    /// How often it went down, as far as anybody counts.
    downs: Option<u64>,
    /// Whether the interface of this name is another: it was removed and made again.
    replaced: bool,
}

impl OfKernel {
    fn new(folder: String) -> Self {
        Self {
            before: number(&folder, "carrier_down_count").unwrap_or(0),
            index: number(&folder, "ifindex"),
            folder,
        }
    }

    fn look(&self) -> Found {
        let number = |file| number(&self.folder, file);
        let indices = self.index.zip(number("ifindex"));
        let replaced = indices.is_some_and(|(first, now)| first != now);
        let counted = number("carrier_down_count").filter(|_| !replaced);
        Found {
            up: match replaced {
                true => Some(false),
                false => carrier(&self.folder),
            },
            downs: counted.map(|counted| counted.saturating_sub(self.before)),
            replaced,
        }
    }
}

impl Watched {
    fn new(port: Port, of_kernel: Option<OfKernel>) -> Self {
        Self {
            port,
            of_kernel,
            up: AtomicBool::new(true),
            replaced: AtomicBool::new(false),
            downs: AtomicU64::new(0),
        }
    }

    fn look(&self) -> Found {
        self.of_kernel.as_ref().map_or_else(
            || Found {
                // Drivers that cannot tell are believed to be up.
                up: Some(self.port.link().map_or(true, |link| link.up)),
                downs: None,
                replaced: false,
            },
            OfKernel::look,
        )
    }
}

/// Whether an interface has a carrier, if that can be told: a process may have no descriptor left.
fn carrier(folder: &str) -> Option<bool> {
    match fs::read_to_string(format!("{folder}/carrier")) {
        Ok(text) => Some(text.trim() == "1"),
        // Without a carrier to speak of, as when it is shut, or without an interface.
        Err(error) => match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::NotFound => Some(false),
            _ => None,
        },
    }
}

fn number(folder: &str, file: &str) -> Option<u64> {
    fs::read_to_string(format!("{folder}/{file}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

impl Links {
    /// Watches ports without interfaces, such as rings, of which nothing is logged.
    pub fn without_interfaces(ports: impl IntoIterator<Item = Port>) -> Self {
        let watched = ports.into_iter().map(|port| Watched::new(port, None));
        Self {
            watched: watched.collect(),
            says: false,
        }
    }

    /// Watches ports and their interfaces, which are taken to be up.
    pub fn new<'a>(ports: impl IntoIterator<Item = (Port, &'a Interface)>) -> Self {
        let watched = ports.into_iter().map(|(port, interface)| {
            let of_kernel = interface
                .driver
                .leaves_to_kernel()
                .then(|| OfKernel::new(format!("/sys/class/net/{}", interface.name)));
            Watched::new(port, of_kernel)
        });
        Self {
            watched: watched.collect(),
            says: true,
        }
    }

    /// The same, where others say what changes.
    #[must_use]
    pub fn silent(self) -> Self {
        Self {
            says: false,
            ..self
        }
    }

    /// Looks at all of them, and logs what has changed, unless others do. Tells each port as well:
    /// without a link it holds up nobody. A port whose interface was removed and made again has no
    /// link any more: its sockets are of the old one. To be called now and then, by any thread.
    pub fn look(&self) {
        for watched in self.watched.iter() {
            let Found {
                up,
                downs: counted,
                replaced,
            } = watched.look();
            let was = match up {
                Some(up) => watched.up.swap(up, Ordering::Relaxed),
                None => watched.up.load(Ordering::Relaxed),
            };
            let up = up.unwrap_or(was);
            watched.port.note_link(up);
            let downs = watched.downs.load(Ordering::Relaxed);
            let counted = match counted {
                Some(counted) => counted,
                None => downs + u64::from(was && !up),
            };
            let before = watched.downs.fetch_max(counted, Ordering::Relaxed);
            let port = watched.port.name();
            if replaced && !watched.replaced.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    port,
                    "the interface was removed and made again, and is lost to this run: start it again"
                );
            }
            match (was, up) {
                _ if !self.says => {}
                (true, false) => {
                    tracing::warn!(port, "link is down: packets are lost until it is up again");
                }
                (false, true) => tracing::info!(port, "link is up again"),
                (true, true) if counted > before => {
                    tracing::warn!(port, "link was down for a moment");
                }
                _ => {}
            }
        }
    }

    /// Each port, whether it was up when it was looked at, and how often it went down.
    pub fn states(&self) -> impl Iterator<Item = (&Port, bool, u64)> {
        self.watched.iter().map(|watched| {
            let up = watched.up.load(Ordering::Relaxed);
            (&watched.port, up, watched.downs.load(Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_was_made_again_is_down() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        write("carrier", "1\n");
        write("carrier_down_count", "3\n");
        let interface = || OfKernel::new(folder.path().to_str().unwrap().to_owned());
        let unknown = interface();
        write("ifindex", "7\n");
        let known = interface();
        let found = |up, downs, replaced| Found {
            up: Some(up),
            downs,
            replaced,
        };
        assert_eq!(known.look(), found(true, Some(0), false));
        write("carrier_down_count", "5\n");
        assert_eq!(known.look(), found(true, Some(2), false));
        write("ifindex", "9\n");
        assert_eq!(known.look(), found(false, None, true));
        assert_eq!(unknown.look(), found(true, Some(2), false));
        // While there is none, nobody knows whether it comes back.
        fs::remove_file(folder.path().join("ifindex")).unwrap();
        fs::remove_file(folder.path().join("carrier")).unwrap();
        assert_eq!(known.look(), found(false, Some(2), false));
        // A file that cannot be read tells nothing.
        fs::create_dir(folder.path().join("carrier")).unwrap();
        assert_eq!(known.look().up, None);
    }
}
