//! Files of Karoo's own: arguments of the kernel, and limits of processes. Several profiles may add
//! to one, and each leaves what others put there.

use super::super::{Entry, Kind, Knob, Limit, Profile, Scope, Status, Target, Want};
use super::{Checker, fill};
use crate::topology::CpuList;

/// Where `apply` puts arguments of the kernel.
pub(in super::super) const GRUB: &str = "/etc/default/grub.d/karoo.cfg";
/// Where `apply` puts limits of processes.
const LIMITS: &str = "/etc/security/limits.d/90-karoo.conf";

/// First line of each file.
const HEAD: &str = "# By karoo tune; karoo tune revert removes it.\n";
/// What is before the arguments, and behind them.
const LINE: [&str; 2] = ["GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX ", "\""];

/// The argument for numbers of huge pages, of the size that one before it says.
const HUGE_PAGES: &str = "hugepages";
/// The argument for that size.
const PAGE_SIZE: &str = "hugepagesz";
/// The argument for the size of those without another.
const DEFAULT_SIZE: &str = "default_hugepagesz";
/// Arguments of which each that is given counts.
const ADD_UP: [&str; 2] = ["console", "iommu"];
/// Arguments of which the kernel takes the first, and refuses another list behind it; of those in
/// neither list it takes the last.
const FIRST: [&str; 2] = ["isolcpus", "nohz_full"];
/// The size that profiles mean unless they say another.
const USUAL_SIZE: &str = "2M";

impl Checker<'_> {
    /// An argument that the kernel was, or will be, started with. Lists of CPUs are compared as
    /// sets. `id` is the entry's.
    pub(super) fn argument(&self, id: &str, name: &str, value: &str) -> Knob {
        let mut knob = Knob {
            name: format!("kernel argument {name}"),
            status: Status::Absent,
            current: "not given".to_owned(),
            wanted: String::new(),
            change: None,
            remedy: None,
        };
        let Some(wanted) = fill(value, self.scope) else {
            return knob;
        };
        knob.wanted = written(name, &wanted);
        let line = self.host.root().read("/proc/cmdline").unwrap_or_default();
        let is_pages = name == HUGE_PAGES;
        let size = page_size(self.profile, id);
        let current = match is_pages {
            true => given_pages(&line, size),
            false => given(&line, name),
        };
        let cpus = |text: &str| -> Option<CpuList> {
            let is_word = |part: &&str| part.starts_with(|c: char| c.is_alphabetic());
            let numbers = text.split(',').filter(|part| !is_word(part));
            let list: CpuList = numbers.collect::<Vec<_>>().join(",").parse().ok()?;
            (!list.is_empty()).then_some(list)
        };
        let least = wanted.starts_with(">=").then(|| wanted.parse::<Want>());
        let same = |current: &String| match &least {
            Some(Ok(least)) if is_pages => least.is_met(&total(current)) == Some(true),
            Some(least) => least
                .as_ref()
                .is_ok_and(|least| least.is_met(current) == Some(true)),
            None if value.contains('{') => {
                cpus(current).is_some_and(|list| cpus(&wanted) == Some(list))
            }
            None => *current == wanted,
        };
        // Of numbers of pages the kernel takes the first, too.
        let (taken, place) = match is_pages || FIRST.contains(&name) {
            true => (current.first(), "first"),
            false => (current.last(), "last"),
        };
        if let Some(value) = taken {
            knob.current = written(name, value);
        }
        let target = Target::Own {
            path: GRUB.to_owned(),
        };
        let file = self.host.get(&target).ok().flatten().unwrap_or_default();
        let new = arguments_file(&file, &arguments(self.profile, self.scope));
        let folder = self.host.root().path("/etc/default/grub.d");
        knob.status = Status::Miss;
        let is_ok = match ADD_UP.contains(&name) {
            true => current.iter().any(same),
            false => taken.is_some_and(same),
        };
        // The host's own number, which stands before ours.
        let own = || {
            let text = self.host.root().read("/etc/default/grub");
            let own = given_pages(&own_line(&text.unwrap_or_default()), size);
            own.into_iter().next().filter(|own| !same(own))
        };
        if is_ok {
            knob.status = Status::Ok;
        } else if let Some(own) = is_pages.then(own).flatten() {
            let text = format!(
                "the kernel takes the first number of a size: change hugepages={own} in /etc/default/grub to {}, then \
                 update-grub, then reboot",
                wanted.trim_start_matches(">=")
            );
            knob.remedy = Some(text);
        } else if is_pages && current.iter().skip(1).any(same) {
            let text = format!(
                "the kernel takes the first number of a size: take {} off its command line where the boot loader has it \
                 (grep -r hugepages /etc/default), then update-grub, then reboot",
                knob.current
            );
            knob.remedy = Some(text);
        } else if !is_pages && current.iter().any(same) {
            let text = format!(
                "the kernel takes the {place} {name}: take {} off its command line where the boot loader has it (grep -r \
                 {name} /etc/default), then update-grub, then reboot",
                knob.current
            );
            knob.remedy = Some(text);
        } else if file == new {
            knob.status = Status::Pending;
            knob.remedy = Some("update-grub, then reboot".to_owned());
        } else if folder.is_dir() {
            knob.change = Some((target, new));
        } else {
            let text = "this host's boot loader has no /etc/default/grub.d: add it to the command line yourself";
            knob.remedy = Some(text.to_owned());
        }
        knob
    }

    /// A limit as this process has it.
    pub(super) fn limit(&self, limit: Limit, want: &Want) -> Knob {
        let limits = self
            .host
            .root()
            .read("/proc/self/limits")
            .unwrap_or_default();
        let soft = limits.lines().find_map(|line| {
            let values = line.strip_prefix(limit.in_proc())?;
            values.split_whitespace().next().map(str::to_owned)
        });
        let target = Target::Own {
            path: LIMITS.to_owned(),
        };
        let file = self.host.get(&target).ok().flatten().unwrap_or_default();
        let new = limits_file(&file, &limit_lines(self.profile));
        let folder = self.host.root().path("/etc/security/limits.d");
        let mut knob = Knob {
            name: format!("limit {}", limit.in_conf()),
            status: Status::Miss,
            current: soft.clone().unwrap_or_default(),
            wanted: want.to_string(),
            change: None,
            remedy: None,
        };
        match soft.as_deref().map(|soft| want.is_met(soft)) {
            None => knob.status = Status::Absent,
            Some(Some(true)) => knob.status = Status::Ok,
            _ if file == new => {
                knob.status = Status::Pending;
                knob.remedy = Some("log in again; a service has limits of its own".to_owned());
            }
            _ if folder.is_dir() => knob.change = Some((target, new)),
            _ => {
                let text =
                    "this host has no /etc/security/limits.d: raise it where the engine is started";
                knob.remedy = Some(text.to_owned());
            }
        }
        knob
    }
}

/// A profile's arguments, as they are on a command line.
fn arguments(profile: &Profile, scope: &Scope) -> Vec<String> {
    let words = kernel_arguments(&profile.entries)
        .filter_map(|(name, value)| Some(written(name, &fill(value, scope)?)));
    split(&words.collect::<Vec<_>>().join(" "))
}

/// Names and values of the kernel's arguments among a profile's entries.
fn kernel_arguments(entries: &[Entry]) -> impl Iterator<Item = (&str, &str)> {
    entries.iter().filter_map(|entry| match &entry.kind {
        Kind::KernelArgument { name, value } => Some((&name[..], &value[..])),
        _ => None,
    })
}

/// The size of huge pages that a number in this entry is of.
fn page_size<'a>(profile: &'a Profile, id: &str) -> &'a str {
    let end = profile.entries.iter().position(|entry| entry.id == id);
    let before = &profile.entries[..end.unwrap_or(0)];
    let last = sized(kernel_arguments(before), USUAL_SIZE).last();
    last.map_or(USUAL_SIZE, |(size, ..)| size)
}

/// Arguments, each with the size of huge pages that a number there is of; `first` is that of a
/// number before all sizes.
fn sized<'a>(
    arguments: impl Iterator<Item = (&'a str, &'a str)>,
    first: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    arguments.scan(first, |size, (name, value)| {
        if [PAGE_SIZE, DEFAULT_SIZE].contains(&name) {
            *size = value;
        }
        Some((*size, name, value))
    })
}

/// An argument as it is on the command line.
fn written(name: &str, value: &str) -> String {
    match value.trim_start_matches(">=") {
        "" => name.to_owned(),
        value => format!("{name}={value}"),
    }
}

/// Arguments apart; each number of huge pages is in one with its size, for the kernel's own default
/// may be another.
fn split(line: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for (size, name, value) in sized(line.split_whitespace().map(parts), USUAL_SIZE) {
        let word = written(name, value);
        if name != HUGE_PAGES {
            all.push(word);
            continue;
        }
        let size = written(PAGE_SIZE, size);
        all.retain(|one| *one != size);
        all.push(format!("{size} {word}"));
    }
    all
}

/// Name and value.
fn parts(argument: &str) -> (&str, &str) {
    argument.split_once('=').unwrap_or((argument, ""))
}

/// What there is one of: huge pages of each size, and each other argument.
fn name_of(argument: &str) -> String {
    let first = argument.split(' ').next().unwrap_or_default();
    match parts(first) {
        (PAGE_SIZE, size) => format!("{PAGE_SIZE}={:?}", bytes(size)),
        (name, _) => name.to_owned(),
    }
}

/// Values of an argument on the kernel's command line.
fn given(line: &str, name: &str) -> Vec<String> {
    let words = line.split_whitespace().map(parts);
    let ours = words.filter(|(key, _)| *key == name);
    ours.map(|(_, value)| value.to_owned()).collect()
}

/// Numbers of huge pages of a size on the kernel's command line, of which it takes the first.
fn given_pages(line: &str, size: &str) -> Vec<String> {
    let default = given(line, DEFAULT_SIZE).into_iter().next();
    let default = default.unwrap_or_else(|| USUAL_SIZE.to_owned());
    let words = sized(line.split_whitespace().map(parts), &default);
    let numbers = words.filter(|(of, name, _)| *name == HUGE_PAGES && bytes(of) == bytes(size));
    numbers.map(|(.., value)| value.to_owned()).collect()
}

/// How many that is, of all nodes if it says how many of each (`0:512,1:512`).
fn total(pages: &str) -> String {
    let node = |part: &str| part.rsplit(':').next()?.parse::<u64>().ok();
    let mut nodes = pages.split(',').map(node);
    let sum = nodes.try_fold(0u64, |sum, node| sum.checked_add(node?));
    sum.map_or_else(|| pages.to_owned(), |sum| sum.to_string())
}

/// Arguments of the kernel in `/etc/default/grub`, which stand before those of Karoo's file.
fn own_line(text: &str) -> String {
    let line = |line: &str| {
        line.trim()
            .strip_prefix("GRUB_CMDLINE_LINUX=")
            .map(str::to_owned)
    };
    let line = text
        .lines()
        .filter_map(line)
        .next_back()
        .unwrap_or_default();
    line.trim_matches(['"', '\'']).to_owned()
}

/// A size as the kernel takes it.
fn bytes(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_uppercase() {
        b'K' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => return text.parse().ok(),
    };
    Some(text[..text.len() - 1].parse::<u64>().ok()? << shift)
}

/// The file of arguments with these among them.
fn arguments_file(old: &str, ours: &[String]) -> String {
    let [before, behind] = LINE;
    let line = |line| str::strip_suffix(str::strip_prefix(line, before)?, behind);
    let line = old.lines().find_map(line).unwrap_or_default();
    let there = split(line);
    let all = merged(&there, ours, name_of).unwrap_or(there);
    match all.join(" ") {
        all if all == line => old.to_owned(),
        all => format!("{HEAD}{before}{all}{behind}\n"),
    }
}

/// A profile's limits, a line for each.
fn limit_lines(profile: &Profile) -> Vec<String> {
    let lines = profile
        .entries
        .iter()
        .filter_map(|entry| match &entry.kind {
            Kind::Limit { limit, want } => Some(
                ["*", "root"].map(|who| format!("{who} - {} {}", limit.in_conf(), want.value())),
            ),
            _ => None,
        });
    lines.flatten().collect()
}

/// The file of limits with these among them.
fn limits_file(old: &str, ours: &[String]) -> String {
    let lines = old.lines().filter(|line| !line.starts_with('#'));
    let there: Vec<_> = lines.map(str::to_owned).collect();
    let name = |line: &str| {
        let (name, _) = line.rsplit_once(' ').unwrap_or((line, ""));
        name.to_owned()
    };
    match merged(&there, ours, name) {
        None => old.to_owned(),
        Some(all) => format!("{HEAD}{}\n", all.join("\n")),
    }
}

/// What is `there` with `ours` in the place of all that have the same names; `None` if that is so.
fn merged(there: &[String], ours: &[String], name: impl Fn(&str) -> String) -> Option<Vec<String>> {
    let names: Vec<_> = ours.iter().map(|one| name(one)).collect();
    let is_ours = |one: &&String| names.contains(&name(one));
    if there.iter().filter(is_ours).eq(ours) {
        return None;
    }
    let others = there.iter().filter(|one| !is_ours(one));
    Some(others.chain(ours).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(arguments: &str) -> String {
        let [before, behind] = LINE;
        format!("{HEAD}{before}{arguments}{behind}\n")
    }

    #[test]
    fn profiles_leave_the_arguments_of_others() {
        let first = split("isolcpus=1-7 hugepagesz=2M hugepages=1024 nosoftlockup");
        let second = split("nosoftlockup console=tty0 console=ttyS0");
        let one = arguments_file("", &first);
        assert_eq!(
            one,
            file("isolcpus=1-7 hugepagesz=2M hugepages=1024 nosoftlockup")
        );
        let both = arguments_file(&one, &second);
        let all =
            "isolcpus=1-7 hugepagesz=2M hugepages=1024 nosoftlockup console=tty0 console=ttyS0";
        assert_eq!(both, file(all));
        for profile in [&first, &second] {
            assert_eq!(
                arguments_file(&both, profile),
                both,
                "nothing is left to do"
            );
        }
        let third = split("isolcpus=2-7 hugepagesz=1G hugepages=8");
        let rest = "hugepagesz=2M hugepages=1024 nosoftlockup console=tty0 console=ttyS0";
        let changed = file(&format!("{rest} isolcpus=2-7 hugepagesz=1G hugepages=8"));
        assert_eq!(arguments_file(&both, &third), changed);
        // As they were written without a size.
        let before = file("hugepages=512 iommu=pt");
        let second = file("iommu=pt hugepagesz=2M hugepages=1024");
        assert_eq!(arguments_file(&before, &first[1..2]), second);
    }

    #[test]
    fn profiles_leave_the_limits_of_others() {
        let lines = |text: &[&str]| -> Vec<String> { text.iter().map(|l| l.to_string()).collect() };
        let first = lines(&["* - memlock unlimited", "root - memlock unlimited"]);
        let second = lines(&["* - rtprio 95"]);
        let one = limits_file("", &first);
        assert_eq!(
            one,
            format!("{HEAD}* - memlock unlimited\nroot - memlock unlimited\n")
        );
        let both = limits_file(&one, &second);
        assert_eq!(both, format!("{one}* - rtprio 95\n"));
        assert_eq!(limits_file(&both, &first), both);
        let less = limits_file(&both, &lines(&["* - memlock 64"]));
        assert!(
            less.contains("* - memlock 64\n") && !less.contains("* - memlock unlimited"),
            "{less}"
        );
    }

    /// The number is that of the size before it, or of the kernel's default.
    #[test]
    fn huge_pages_are_counted_by_their_size() {
        let counted = |line: &str, size| given_pages(line, size).join(" ");
        assert_eq!(counted("ro hugepages=1024 quiet", "2M"), "1024");
        let usual = "default_hugepagesz=1G hugepagesz=1G hugepages=8";
        assert_eq!(counted(usual, "2M"), "");
        assert_eq!(counted(usual, "1024M"), "8");
        let both = "hugepages=4 hugepagesz=2M hugepages=2000 default_hugepagesz=1G";
        assert_eq!(counted(both, "2M"), "2000");
        assert_eq!(counted(both, "1G"), "4");
        let twice = "hugepages=0:512,1:512 hugepagesz=2048K hugepages=256";
        assert_eq!(counted(twice, "2M"), "0:512,1:512 256");
        assert_eq!([total("0:512,1:512"), total("x")], ["1024", "x"]);
        let many = "0:18446744073709551615,1:1";
        assert_eq!(total(many), many);
    }

    /// Whichever argument says the size, however, and wherever before the number.
    #[test]
    fn huge_pages_are_written_with_their_size() {
        for (line, pieces) in [
            (
                "hugepages=8 iommu=pt",
                &["hugepagesz=2M hugepages=8", "iommu=pt"][..],
            ),
            (
                "default_hugepagesz=1G hugepages=8",
                &["default_hugepagesz=1G", "hugepagesz=1G hugepages=8"],
            ),
            (
                "hugepagesz=1G iommu=pt hugepages=8 hugepagesz=2M",
                &["iommu=pt", "hugepagesz=1G hugepages=8", "hugepagesz=2M"],
            ),
        ] {
            assert_eq!(split(line), pieces);
            assert_eq!(split(&pieces.join(" ")), pieces);
        }
        let pages = split("hugepagesz=2M hugepages=1024");
        let large = split("hugepagesz=1G iommu=pt hugepages=8");
        let both = arguments_file(&arguments_file("", &pages), &large);
        assert_eq!(
            both,
            file("hugepagesz=2M hugepages=1024 iommu=pt hugepagesz=1G hugepages=8")
        );
        let in_kib = split("hugepagesz=2048K hugepages=512");
        assert_eq!(
            arguments_file(&arguments_file("", &pages), &in_kib),
            file("hugepagesz=2048K hugepages=512")
        );
    }
}
