//! DPDK's environment: memory, lcores, drivers. It starts once per process.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ground::TscClock;
use ground::os::allowed_cpus;

use super::error::Errno;
use super::files::{FEWEST_FILES, make_room_for_files};
use super::huge_pages::{
    HugePages, TakenPages, free_huge_pages_mib, plain_mib, turn_at_huge_pages,
};
use super::lcore::{Lcore, LcoreId};
use super::log;

/// What to start EAL with.
#[derive(Clone, Debug)]
pub struct EalConfig {
    /// CPU of each worker lcore, in order; the same CPU may be named more than once.
    pub worker_cpus: Vec<usize>,
    /// Memory for DPDK, in MiB: huge pages where enough are free, plain memory otherwise.
    pub memory_mib: usize,
    /// Where the memory comes from.
    pub huge_pages: HugePages,
    /// PCI addresses to probe, such as `0000:03:00.0`, with driver options after a comma; none: PCI
    /// is left alone.
    pub devices: Vec<String>,
    /// Virtual devices to create, such as `net_null0,size=4096`.
    pub vdevs: Vec<String>,
    /// Further arguments for EAL, as on its command line.
    pub extra_args: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> Self {
        Self {
            worker_cpus: Vec::new(),
            memory_mib: 256,
            huge_pages: HugePages::Auto,
            devices: Vec::new(),
            vdevs: Vec::new(),
            extra_args: Vec::new(),
        }
    }
}

/// Why EAL did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EalError {
    /// EAL starts once per process.
    #[error(
        "DPDK's EAL was already started in this process, and it cannot start twice: share the first one"
    )]
    AlreadyStarted,
    /// Too few huge pages.
    #[error(
        "{needed_mib} MiB of huge pages are required, {free_mib} MiB are free: {}",
        .taken.room_for(*.needed_mib)
    )]
    NoHugePages {
        /// Wanted.
        needed_mib: usize,
        /// Free.
        free_mib: usize,
        /// What other programs have.
        taken: TakenPages,
    },
    /// A CPU that this process may not use.
    #[error(
        "worker lcore {lcore} is to run on CPU {cpu}, but this process may use CPUs {allowed:?} only: name one of these, or let it have that one (taskset, cpuset)"
    )]
    Cpu {
        /// Lcore.
        lcore: usize,
        /// CPU.
        cpu: usize,
        /// CPUs in this process's affinity mask.
        allowed: Vec<usize>,
    },
    /// Too few file descriptors: EAL would abort the process.
    #[error(
        "this process may have {limit} file descriptors, at least {FEWEST_FILES} are needed: raise the limit (ulimit -n)"
    )]
    Files {
        /// The limit.
        limit: u64,
    },
    /// An argument that cannot be passed on.
    #[error("EAL argument '{0}' contains a NUL byte")]
    Argument(String),
    /// `rte_eal_init` failed.
    #[error("rte_eal_init({args}): {errno}\n{log}")]
    Init {
        /// Arguments.
        args: String,
        /// Why.
        errno: Errno,
        /// What DPDK logged.
        log: String,
    },
}

/// Proof that EAL is up. Clones share it; everything made from it keeps it up.
#[derive(Clone, Debug)]
pub struct Eal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    workers: Vec<Lcore>,
    huge_pages: bool,
    /// As asked for.
    memory_mib: usize,
    /// Numbers of the ports that have a [`Device`](super::Device).
    control: Mutex<HashSet<u16>>,
}

static STARTED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// The time-stamp counter, whose rate EAL read or measured when it started.
    pub fn tsc_clock(&self) -> TscClock {
        // SAFETY: EAL is initialised, which `self` proves.
        TscClock::new(unsafe { dpdk_sys::rte_get_tsc_hz() })
    }

    /// Starts EAL. The calling thread becomes its main lcore and keeps its CPU affinity. The limit
    /// of file descriptors is raised as far as the host lets it, up to 1024.
    pub fn init(config: &EalConfig) -> Result<Self, EalError> {
        let allowed = allowed_cpus();
        for (index, &cpu) in config.worker_cpus.iter().enumerate() {
            if !allowed.contains(&cpu) {
                return Err(EalError::Cpu {
                    lcore: index + 1,
                    cpu,
                    allowed,
                });
            }
        }
        make_room_for_files()?;
        let _turn = match config.huge_pages {
            HugePages::Never => None,
            HugePages::Auto | HugePages::Require => turn_at_huge_pages(),
        };
        let huge_pages = choose_memory(config)?;
        let args = arguments(config, &allowed, huge_pages);
        let c_args = args
            .iter()
            .map(|arg| CString::new(arg.as_str()).map_err(|_| EalError::Argument(arg.clone())))
            .collect::<Result<Vec<_>, _>>()?;
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(EalError::AlreadyStarted);
        }

        // EAL keeps pointers into its arguments for the life of the process.
        let mut argv: Vec<*mut c_char> = c_args.into_iter().map(CString::into_raw).collect();
        argv.push(std::ptr::null_mut());
        let argv = argv.leak();
        // SAFETY: `take_line` is a function for the life of the process; called once, before EAL
        // has threads.
        unsafe { dpdk_sys::karoo_log_to(Some(log::take_line)) };
        // SAFETY: argv has args.len() C strings and a closing null, all leaked; STARTED makes this
        // the only call.
        let ret = unsafe { dpdk_sys::rte_eal_init(args.len() as i32, argv.as_mut_ptr()) };
        if ret < 0 {
            return Err(EalError::Init {
                args: args.join(" "),
                errno: Errno::last(),
                log: Self::recent_log().join("\n"),
            });
        }
        let workers = config
            .worker_cpus
            .iter()
            .enumerate()
            .map(|(index, &cpu)| Lcore {
                id: LcoreId(index as u32 + 1),
                cpu,
            })
            .collect();
        tracing::debug!(huge_pages, args = args.join(" "), "DPDK is up");
        Ok(Self(Arc::new(Inner {
            workers,
            huge_pages,
            memory_mib: config.memory_mib,
            control: Mutex::default(),
        })))
    }

    /// The one EAL that all tests of a process share: four workers, on whatever CPUs there are.
    #[doc(hidden)]
    pub fn for_tests() -> &'static Self {
        static SHARED: OnceLock<Eal> = OnceLock::new();
        SHARED.get_or_init(|| {
            let cpus = allowed_cpus();
            let config = EalConfig {
                worker_cpus: (0..4).map(|worker| cpus[worker % cpus.len()]).collect(),
                memory_mib: 128,
                huge_pages: match std::env::var("KAROO_TEST_HUGE_PAGES").as_deref() {
                    Ok("never") => HugePages::Never,
                    Ok("require") => HugePages::Require,
                    _ => HugePages::Auto,
                },
                ..EalConfig::default()
            };
            Self::init(&config).expect("EAL starts for tests")
        })
    }

    /// Worker lcores, in the order of [`EalConfig::worker_cpus`].
    pub fn workers(&self) -> &[Lcore] {
        &self.0.workers
    }

    /// What is said where its memory is used up.
    pub(super) fn memory(&self) -> super::Memory {
        super::Memory {
            mib: self.0.memory_mib,
            huge_pages: self.0.huge_pages,
            free_mib: free_huge_pages_mib(),
            taken: TakenPages::of_host(),
        }
    }

    /// Whether DPDK's memory is in huge pages.
    pub fn huge_pages(&self) -> bool {
        self.0.huge_pages
    }

    /// Whether devices are given physical addresses (IOVA as PA) rather than the program's own.
    pub(super) fn uses_physical_addresses(&self) -> bool {
        /// `RTE_IOVA_PA`.
        const PHYSICAL: u32 = 1;
        // SAFETY: EAL is up.
        unsafe { dpdk_sys::rte_eal_iova_mode() == PHYSICAL }
    }

    /// Version of the DPDK that runs, such as `DPDK 22.11.11`.
    pub fn version() -> String {
        // SAFETY: returns a static NUL-terminated string, also before EAL is up.
        let text = unsafe { CStr::from_ptr(dpdk_sys::rte_version()) };
        text.to_string_lossy().into_owned()
    }

    /// The last lines that DPDK logged, oldest first; they go to `tracing` (target `dpdk`) as well.
    pub fn recent_log() -> Vec<String> {
        log::recent()
    }

    /// Serialises what DPDK leaves unprotected: creation and destruction of devices, launches. Has
    /// the ports that are taken.
    pub(super) fn control(&self) -> MutexGuard<'_, HashSet<u16>> {
        ground::lock(&self.0.control)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: every pool, ring, port and running job holds a clone of the Eal, and a pool whose
        // mbufs are still out leaks its clone, so nothing of DPDK is in use any more.
        unsafe { dpdk_sys::rte_eal_cleanup() };
    }
}

fn choose_memory(config: &EalConfig) -> Result<bool, EalError> {
    let needed_mib = config.memory_mib;
    let free_mib = free_huge_pages_mib();
    match config.huge_pages {
        HugePages::Never => Ok(false),
        _ if free_mib >= needed_mib => Ok(true),
        HugePages::Auto => {
            tracing::info!(
                needed_mib,
                free_mib,
                "too few huge pages are free: DPDK uses plain memory"
            );
            Ok(false)
        }
        HugePages::Require => Err(EalError::NoHugePages {
            needed_mib,
            free_mib,
            taken: TakenPages::of_host(),
        }),
    }
}

fn arguments(config: &EalConfig, allowed: &[usize], huge_pages: bool) -> Vec<String> {
    // EAL pins the thread that calls it; naming every CPU leaves it, and the threads it starts, as
    // free as before.
    let main: Vec<String> = allowed.iter().map(usize::to_string).collect();
    let mut lcores = format!("0@({})", main.join(","));
    for (index, cpu) in config.worker_cpus.iter().enumerate() {
        let _ = write!(lcores, ",{}@{cpu}", index + 1);
    }
    let mut args = vec!["karoo".to_owned(), "--lcores".into(), lcores];
    // Either way no files are left behind, and processes do not see each other.
    if huge_pages {
        args.push("--in-memory".into());
    } else {
        args.extend(["--no-huge".into(), "--no-shconf".into()]);
    }
    let mib = match huge_pages {
        true => config.memory_mib,
        false => plain_mib(config.memory_mib),
    };
    args.extend(["-m".into(), mib.to_string()]);
    args.push("--no-telemetry".into());
    args.push(format!(
        "--iova-mode={}",
        iova_mode(Path::new("/"), &config.devices)
    ));
    if config.devices.is_empty() {
        args.push("--no-pci".into());
    }
    for device in &config.devices {
        args.extend(["-a".into(), device.clone()]);
    }
    for vdev in &config.vdevs {
        args.push(format!("--vdev={vdev}"));
    }
    args.extend(config.extra_args.iter().cloned());
    args
}

/// The program's own addresses for devices too, by which memory that is not DPDK's is mapped for
/// them; physical ones if a device has no IOMMU to translate them.
fn iova_mode(root: &Path, devices: &[String]) -> &'static str {
    let has_no_iommu = |device: &String| {
        let address = device.split(',').next().unwrap_or_default();
        let folder = root.join("sys/bus/pci/devices").join(address);
        let driver = fs::read_link(folder.join("driver")).unwrap_or_default();
        let group = fs::read_to_string(folder.join("iommu_group/name")).unwrap_or_default();
        driver.ends_with("uio_pci_generic")
            || driver.ends_with("igb_uio")
            || group.trim_end() == "vfio-noiommu"
    };
    match devices.iter().any(has_no_iommu) {
        true => "pa",
        false => "va",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::have_huge_pages;

    #[test]
    fn lcores_may_share_a_cpu() {
        let config = EalConfig {
            worker_cpus: vec![1, 0, 1],
            ..EalConfig::default()
        };
        let args = arguments(&config, &[0, 1], false);
        assert!(args.contains(&"0@(0,1),1@1,2@0,3@1".to_owned()), "{args:?}");
        assert!(args.contains(&"--no-pci".to_owned()));
        assert!(args.contains(&"--no-huge".to_owned()));
    }

    #[test]
    fn devices_behind_no_iommu_are_given_physical_addresses() {
        let root = tempfile::tempdir().unwrap();
        let device = |address: &str, driver: &str, group: Option<&str>| {
            let folder = root.path().join("sys/bus/pci/devices").join(address);
            fs::create_dir_all(folder.join("iommu_group")).unwrap();
            let target = Path::new("../../drivers").join(driver);
            std::os::unix::fs::symlink(target, folder.join("driver")).unwrap();
            if let Some(name) = group {
                fs::write(folder.join("iommu_group/name"), name).unwrap();
            }
            format!("{address},mrg_rxbuf=1")
        };
        let behind = device("0000:01:00.0", "vfio-pci", None);
        let mode = |devices: &[&String]| {
            let devices: Vec<_> = devices.iter().copied().cloned().collect();
            iova_mode(root.path(), &devices)
        };
        assert_eq!((mode(&[]), mode(&[&behind])), ("va", "va"));
        let without = device("0000:02:00.0", "vfio-pci", Some("vfio-noiommu\n"));
        assert_eq!(mode(&[&behind, &without]), "pa");
        assert_eq!(mode(&[&device("0000:03:00.0", "igb_uio", None)]), "pa");
    }

    #[test]
    fn too_few_huge_pages_are_refused_with_the_number() {
        let config = EalConfig {
            memory_mib: 1 << 30,
            huge_pages: HugePages::Require,
            ..EalConfig::default()
        };
        let error = Eal::init(&config).expect_err("a pebibyte is not there");
        let words = format!("are free: {}", have_huge_pages(config.memory_mib));
        assert!(error.to_string().contains(&words), "{error}");
    }
}
