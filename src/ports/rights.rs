//! What this process may do with interfaces, and what it makes of a driver that wants more.

use std::fs;

use super::resolve::Driver;

/// Capabilities that drivers need, as far as the system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// CAP_NET_RAW.
    pub net_raw: bool,
    /// CAP_NET_ADMIN.
    pub net_admin: bool,
    /// Whether any huge pages are free.
    pub huge_pages: bool,
}

impl Rights {
    /// The rights of this process.
    pub fn of_this_process() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            huge_pages: dpdk::free_huge_pages_mib() > 0,
            ..Self::read(&status)
        }
    }

    /// Effective capabilities of `/proc/PID/status`; all of them where it does not say.
    fn read(status: &str) -> Self {
        const CAP_NET_ADMIN: u64 = 12;
        const CAP_NET_RAW: u64 = 13;
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let set = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        let has = |capability: u64| set.is_none_or(|set| set >> capability & 1 == 1);
        Self {
            net_raw: has(CAP_NET_RAW),
            net_admin: has(CAP_NET_ADMIN),
            huge_pages: true,
        }
    }

    /// What a driver needs of this process and has not.
    pub fn missing(self, driver: Driver) -> Option<&'static str> {
        match driver {
            Driver::AfPacket => match (self.net_raw, self.net_admin) {
                (true, true) => None,
                (false, true) => Some("CAP_NET_RAW"),
                (true, false) => Some("CAP_NET_ADMIN"),
                (false, false) => Some("CAP_NET_RAW and CAP_NET_ADMIN"),
            },
            Driver::Mlx5 if !self.net_raw => Some("CAP_NET_RAW"),
            Driver::Mlx5 if !self.huge_pages => Some("huge pages"),
            Driver::Mlx5 | Driver::Udp | Driver::Vfio | Driver::Virtio => None,
        }
    }

    /// The driver for an interface of the kernel's, which `best` is for, and why another if it is.
    pub fn choose(self, best: Driver) -> (Driver, Option<String>) {
        let mut why: Option<String> = None;
        let drivers = [Driver::Mlx5, Driver::AfPacket, Driver::Udp];
        let from = drivers.iter().position(|&driver| driver == best);
        for &driver in from.map_or(&[][..], |from| &drivers[from..]) {
            let Some(missing) = self.missing(driver) else {
                return (driver, why);
            };
            let text = format!("{} needs {missing}, which there is not", driver.label());
            why = Some(why.map_or(text.clone(), |why| format!("{why}; {text}")));
        }
        (best, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Rights = Rights {
        net_raw: true,
        net_admin: true,
        huge_pages: true,
    };

    #[test]
    fn rights_are_read_of_the_kernels_list() {
        let read = |status: &str| {
            let Rights {
                net_raw, net_admin, ..
            } = Rights::read(status);
            (net_raw, net_admin)
        };
        assert_eq!(
            read("Name:\tkaroo\nCapEff:\t000001ffffffffff\n"),
            (true, true)
        );
        assert_eq!(read("CapEff:\t0000000000002000\n"), (true, false));
        assert_eq!(read("CapEff:\t0000000000001000\n"), (false, true));
        let none = "CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n";
        assert_eq!(read(none), (false, false));
        // Where nothing is known the system says.
        assert_eq!(read(""), (true, true));
        assert_eq!(read("CapEff:\tmany\n"), (true, true));
    }

    /// Each missing right costs what needs it, and nothing else.
    #[test]
    fn what_is_missing_costs_the_drivers_that_need_it() {
        let chosen = |rights: Rights, best| {
            let (driver, why) = rights.choose(best);
            (driver, why.unwrap_or_default())
        };
        for driver in [Driver::Mlx5, Driver::AfPacket, Driver::Udp, Driver::Vfio] {
            assert_eq!(chosen(ALL, driver), (driver, String::new()));
        }
        let no_pages = Rights {
            huge_pages: false,
            ..ALL
        };
        let (driver, why) = chosen(no_pages, Driver::Mlx5);
        assert_eq!(driver, Driver::AfPacket);
        assert!(why.contains("mlx5") && why.contains("huge pages"), "{why}");
        assert_eq!(chosen(no_pages, Driver::AfPacket).0, Driver::AfPacket);
        // What MeerKAT's controller gives.
        let raw = Rights {
            net_admin: false,
            ..no_pages
        };
        let (driver, why) = chosen(raw, Driver::Mlx5);
        assert_eq!(driver, Driver::Udp);
        assert!(
            why.contains("huge pages") && why.contains("CAP_NET_ADMIN"),
            "{why}"
        );
        let none = Rights {
            net_raw: false,
            ..raw
        };
        let (driver, why) = chosen(none, Driver::AfPacket);
        assert_eq!(driver, Driver::Udp);
        assert_eq!(
            why,
            "AF_PACKET needs CAP_NET_RAW and CAP_NET_ADMIN, which there is not"
        );
        // A device that is DPDK's alone has no other way.
        assert_eq!(chosen(none, Driver::Vfio).0, Driver::Vfio);
    }
}
