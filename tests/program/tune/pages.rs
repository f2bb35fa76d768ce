//! Huge pages on the kernel's command line, which takes them by sizes and only once of each.

use std::fs;

use super::Recorded;
use crate::support::host;

/// The kernel's own number is of pages of 1 GiB there: with 1024 of them nothing would be left.
#[test]
fn huge_pages_are_of_two_mebibytes_whatever_the_default() {
    let usual = "default_hugepagesz=1G hugepagesz=1G hugepages=8";
    let record = host::record("milan")
        .replace("ro quiet", &format!("ro quiet {usual}"))
        .replace("2048kB/nr_hugepages = 2048", "2048kB/nr_hugepages = 0");
    let server = Recorded::new(&format!("{record}proc/sys/vm/nr_hugepages = 8\n"));
    assert_eq!(server.statuses("appliance")["huge-pages-at-boot"], ["miss"]);
    server.ended(0, &["apply", "appliance", "--yes"]);
    assert_eq!(server.file("proc/sys/vm/nr_hugepages"), "8\n");
    let pages = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    assert_eq!(server.file(pages), "1024\n");
    let boot = |arguments: &str| {
        let line = format!("ro {arguments}\n");
        fs::write(server.root.path().join("proc/cmdline"), line).unwrap();
        server.statuses("appliance")["huge-pages-at-boot"].join("")
    };
    assert_eq!(boot(&format!("hugepagesz=2M hugepages=1024 {usual}")), "ok");
    assert_eq!(boot("hugepages=2048"), "ok");
    assert_eq!(boot("default_hugepagesz=1G hugepages=2048"), "pending");
    // The kernel takes the first.
    assert_eq!(boot("hugepages=256 hugepagesz=2M hugepages=1024"), "miss");
}

/// Karoo's own stands behind it, and the kernel does not look at it.
#[test]
fn a_number_of_huge_pages_of_the_hosts_own_is_left_to_it() {
    let record = host::record("milan").replace("ro quiet", "ro quiet hugepages=256");
    let server = Recorded::new(&record);
    let grub = server.root.path().join("etc/default/grub");
    fs::write(&grub, "GRUB_CMDLINE_LINUX=\"quiet hugepages=256\"\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("pages.toml");
    let text = "purpose = 'a test'\n[[entry]]\nid = 'x'\nkind = 'kernel-argument'\n\
        name = 'hugepages'\nvalue = '>=1024'\nwhat = 'w'\nwhy = 'y'\n";
    fs::write(&profile, text).unwrap();
    let profile = profile.to_str().unwrap();
    let said = server.ended(0, &["apply", profile, "--yes"]);
    let remedy = "change hugepages=256 in /etc/default/grub to 1024, then update-grub";
    assert!(
        said.contains(remedy) && said.contains("nothing to change"),
        "{said}"
    );
    fs::write(&grub, "GRUB_CMDLINE_LINUX=quiet\n").unwrap();
    server.ended(0, &["apply", profile, "--yes"]);
    assert_eq!(server.statuses(profile)["x"], ["pending"]);
}
