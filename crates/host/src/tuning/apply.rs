//! Changes, and the way back.

use std::collections::BTreeSet;

use super::{Finding, Host, HostError, Journal, JournalError, Record, Target};

/// A change to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The entry that asks for it.
    pub entry: String,
    /// The value that is to change.
    pub target: Target,
    /// What it is.
    pub current: String,
    /// What it will be.
    pub value: String,
}

/// What became of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is what it was to be.
    Done,
    /// The system refused; it is what it was.
    Refused(String),
    /// The kernel manages it itself, and lets nobody change it.
    Fixed(String),
    /// It is something else now.
    Differs(String),
    /// A reboot has undone it already.
    Gone,
}

/// A value and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The value that was to change.
    pub target: Target,
    /// What it was to be; `None` for a file that was to go.
    pub value: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
}

/// The changes that `findings` call for, each value once.
pub fn changes(findings: &[Finding]) -> Vec<Change> {
    let mut seen = BTreeSet::new();
    let mut changes = Vec::new();
    for finding in findings {
        for knob in &finding.values {
            if let Some((target, value)) = &knob.change
                && seen.insert(target.clone())
            {
                changes.push(Change {
                    entry: finding.entry.id.clone(),
                    target: target.clone(),
                    current: knob.current.clone(),
                    value: value.clone(),
                });
            }
        }
    }
    changes
}

/// Makes changes one after another; each is in the journal, on disk, before it is made. `made` sees
/// each outcome.
///
/// A change that the system refuses does not keep the others from being made.
pub fn apply(
    host: &Host,
    journal: &mut Journal,
    changes: &[Change],
    mut made: impl FnMut(&Applied),
) -> Result<(), JournalError> {
    for change in changes {
        let target = &change.target;
        let report = |outcome| Applied {
            target: target.clone(),
            value: Some(change.value.clone()),
            outcome,
        };
        let old = match host.get(target) {
            Ok(old) => old,
            Err(error) => {
                made(&report(Outcome::Refused(error.to_string())));
                continue;
            }
        };
        let mut record = Record {
            entry: change.entry.clone(),
            target: target.clone(),
            old,
            new: change.value.clone(),
            boot: journal.boot().to_owned(),
            refused: false,
            fixed: false,
        };
        journal.write(record.clone())?;
        let outcome = put(host, target, Some(&change.value));
        let outcome = outcome.unwrap_or_else(|error| failed(target, &error));
        if let Outcome::Refused(_) | Outcome::Fixed(_) = outcome {
            record.refused = true;
            record.fixed = matches!(outcome, Outcome::Fixed(_));
            journal.write(record)?;
        }
        made(&report(outcome));
    }
    Ok(())
}

/// Undoes all that the journal has, the last change first, and empties it if everything is as it
/// was. `made` sees each outcome.
pub fn revert(
    host: &Host,
    journal: &mut Journal,
    mut made: impl FnMut(&Applied),
) -> Result<bool, JournalError> {
    let mut whole = true;
    for record in originals(journal.records()).into_iter().rev() {
        let gone = !record.target.survives_reboot() && record.boot != journal.boot();
        let outcome = match gone {
            true => Outcome::Gone,
            false => put(host, &record.target, record.old.as_deref()).unwrap_or_else(refused),
        };
        whole &= matches!(outcome, Outcome::Done | Outcome::Gone);
        made(&Applied {
            target: record.target,
            value: record.old,
            outcome,
        });
    }
    if whole {
        journal.clear()?;
    }
    Ok(whole)
}

/// The first change of each value in each boot that counts for it: it has what the value was before
/// all.
fn originals(records: &[Record]) -> Vec<Record> {
    let mut originals: Vec<Record> = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let same = |other: &&Record| {
            other.target == record.target
                && (record.target.survives_reboot() || other.boot == record.boot)
        };
        // What the system refused was not changed, but for a file that may be cut off.
        let next = records[number + 1..].iter().find(same);
        let was_refused = !record.target.survives_reboot() && next.is_some_and(|next| next.refused);
        if !record.refused && !was_refused && !originals.iter().any(|other| same(&other)) {
            originals.push(record.clone());
        }
    }
    originals
}

fn refused(error: HostError) -> Outcome {
    Outcome::Refused(error.to_string())
}

/// What became of a change that failed.
fn failed(target: &Target, error: &HostError) -> Outcome {
    match is_fixed(target, error) {
        true => Outcome::Fixed(error.to_string()),
        false => Outcome::Refused(error.to_string()),
    }
}

/// Whether the kernel manages a value itself, and so refuses every change: interrupts of queues
/// that it spread over CPUs. Linux says so by `EIO`, from 6.12 on by `EPERM`; whoever lacks the
/// right cannot even open the file, by other numbers. What else refuses may be this process's
/// sandbox, or a driver that is busy.
fn is_fixed(target: &Target, error: &HostError) -> bool {
    let of_interrupt = matches!(
        target,
        Target::Value { path } if path.starts_with("/proc/irq/") && path.ends_with("/smp_affinity_list")
    );
    let code = match error {
        HostError::System { source, .. } => source.raw_os_error(),
        HostError::Program { .. } => None,
    };
    of_interrupt && matches!(code, Some(libc::EIO | libc::EPERM))
}

/// Sets a value, if it is another, and reads it back.
fn put(host: &Host, target: &Target, value: Option<&str>) -> Result<Outcome, HostError> {
    let same = |now: &Option<String>| now.as_deref().map(str::trim) == value.map(str::trim);
    let mut now = host.get(target)?;
    if !same(&now) {
        host.set(target, value)?;
        now = host.get(target)?;
    }
    Ok(match same(&now) {
        true => Outcome::Done,
        false => Outcome::Differs(now.unwrap_or_default().trim().to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_interrupts_that_the_kernel_manages_are_fixed() {
        let [interrupt, others, governor] = [
            "/proc/irq/9/smp_affinity_list",
            "/proc/irq/default_smp_affinity",
            "/sys/governor",
        ]
        .map(|path| Target::Value { path: path.into() });
        for (target, code, fixed) in [
            (&interrupt, libc::EIO, true),
            // Linux 6.12 and newer.
            (&interrupt, libc::EPERM, true),
            (&interrupt, libc::EROFS, false),
            (&interrupt, libc::EACCES, false),
            (&interrupt, libc::ENOSPC, false),
            (&others, libc::EPERM, false),
            (&governor, libc::EIO, false),
            (&governor, libc::EPERM, false),
        ] {
            let error = HostError::system(target, io::Error::from_raw_os_error(code));
            let outcome = failed(target, &error);
            assert_eq!(matches!(outcome, Outcome::Fixed(_)), fixed, "{outcome:?}");
            assert_eq!(
                matches!(outcome, Outcome::Refused(_)),
                !fixed,
                "{outcome:?}"
            );
        }
    }
}
