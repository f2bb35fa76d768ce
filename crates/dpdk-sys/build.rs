//! Finds the system's DPDK, compiles the shims and generates the bindings.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const MISSING: &str = "DPDK 22.11 or newer was not found by pkg-config (libdpdk.pc): \
    install the Debian packages libdpdk-dev and pkg-config, \
    or point PKG_CONFIG_PATH at the folder that holds libdpdk.pc";

/// Real DPDK functions in use; everything inline goes through `shims.c`.
const FUNCTIONS: &[&str] = &[
    "karoo_.*",
    "rte_dev_dma_(un)?map",
    "rte_dev_name",
    "rte_eal_(init|cleanup|wait_lcore|remote_launch|iova_mode|hotplug_add|hotplug_remove|has_hugepages)",
    "rte_eth_dev_(close|count_avail|get_port_by_name|get_name_by_port|start|stop|set_mtu|get_mtu|socket_id)",
    "rte_eth_(rx|tx)_queue_setup",
    "rte_eth_dev_rx_intr_(enable|disable)",
    "rte_eth_dev_adjust_nb_rx_tx_desc",
    "rte_eth_(stats_get|stats_reset|xstats_get|xstats_get_names|promiscuous_enable|allmulticast_enable|macaddr_get)",
    "rte_eth_find_next_owned_by",
    "rte_eth_from_rings",
    "rte_extmem_(un)?register",
    "rte_get_(next_lcore|main_lcore|tsc_hz)",
    "rte_lcore_(count|to_cpu_id|to_socket_id)",
    "rte_log_set_(global_level|level_pattern)",
    "rte_mempool_(avail_count|in_use_count|free|lookup)",
    "rte_pktmbuf_(pool_create|pool_create_extbuf|free_bulk)",
    "rte_ring_(create|free)",
    "rte_strerror",
    "rte_version",
];

/// Types that these functions name.
const TYPES: &[&str] = &[
    "karoo_.*",
    "lcore_function_t",
    "rte_eth_stats",
    "rte_eth_xstat(_name)?",
    "rte_ether_addr",
    "rte_iova_(mode|t)",
    "rte_mbuf_ext_shared_info",
    "rte_pktmbuf_extmem",
    "rte_mbuf_extbuf_free_callback_t",
];

/// Structures whose insides stay in C.
const OPAQUE: &[&str] = &[
    "rte_mbuf",
    "rte_mempool",
    "rte_ring",
    "rte_device",
    "rte_flow",
    "rte_eth_rxconf",
    "rte_eth_txconf",
];

fn main() {
    println!("cargo:rerun-if-changed=wrapper.h");
    println!("cargo:rerun-if-changed=shims.h");
    println!("cargo:rerun-if-changed=shims.c");

    if let Err(error) = pkg_config::Config::new()
        .atleast_version("22.11")
        .probe("libdpdk")
    {
        eprintln!("error: {MISSING}\n\n{error}");
        std::process::exit(1);
    }
    // rte_eth_from_rings() lives in a driver. Its library here and the file that EAL finds in its
    // plugin folder are one file, so the loader maps it once and the driver registers once.
    println!("cargo:rustc-link-lib=dylib=rte_net_ring");

    let flags = compiler_flags();
    let mut shims = cc::Build::new();
    shims.file("shims.c").opt_level(2).warnings(true);
    // The pkg-config crate drops "-include rte_config.h" and "-march", without which the headers do
    // not compile.
    for flag in &flags {
        shims.flag(flag);
    }
    shims.compile("karoo_dpdk_shims");

    let mut bindings = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_args(&flags)
        .allowlist_recursively(false)
        .prepend_enum_name(false)
        .derive_default(true)
        .generate_comments(false)
        .layout_tests(false)
        .raw_line("use std::os::raw::c_void;");
    for function in FUNCTIONS {
        bindings = bindings.allowlist_function(function);
    }
    for name in TYPES {
        bindings = bindings.allowlist_type(name);
    }
    for name in OPAQUE {
        bindings = bindings.blocklist_type(name).raw_line(format!(
            "#[repr(C)] pub struct {name} {{ _private: [u8; 0], _pinned: ::std::marker::PhantomData<*mut c_void> }}"
        ));
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bindings = match bindings.generate() {
        Ok(bindings) => bindings,
        Err(error) => {
            eprintln!(
                "error: bindgen could not read DPDK's headers (Debian package libclang-dev): {error}"
            );
            std::process::exit(1);
        }
    };
    bindings
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR is writable");
}

/// `pkg-config --cflags libdpdk`, as DPDK's authors mean it to be used.
fn compiler_flags() -> Vec<String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let output = Command::new(program)
        .args(["--cflags", "libdpdk"])
        .output()
        .unwrap_or_else(|error| {
            eprintln!("error: {MISSING}\n\npkg-config did not run: {error}");
            std::process::exit(1);
        });
    String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}
