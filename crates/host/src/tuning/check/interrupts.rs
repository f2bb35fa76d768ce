//! Interrupts: on which CPUs they are handled.

use super::super::{Knob, Status, Target};
use super::{Checker, unknown};
use crate::topology::CpuList;

/// The CPUs of interrupts from the time on when something begins to handle them: for NICs, that is
/// when their interfaces come up. A mask.
const LATER: &str = "/proc/irq/default_smp_affinity";

impl Checker<'_> {
    /// The CPUs of interrupts that nothing handles yet, and interrupts that something handles.
    pub(super) fn interrupts(&self) -> Vec<Knob> {
        let root = self.host.root();
        let numbers = root.list("/proc/irq").into_iter();
        let mut numbers: Vec<usize> = numbers.filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        let knob = |number: usize| {
            let path = format!("/proc/irq/{number}/smp_affinity_list");
            let actions = root.read(format!("/sys/kernel/irq/{number}/actions"));
            if actions.as_deref() == Some("") || !root.path(&path).exists() {
                return None;
            }
            let target = Target::Value { path };
            let knob = Knob {
                name: format!("interrupt {number} {}", actions.unwrap_or_default())
                    .trim()
                    .to_owned(),
                status: Status::Ok,
                current: String::new(),
                wanted: format!("CPUs {}", self.scope.housekeeping),
                change: None,
                remedy: None,
            };
            let current = match self.host.get(&target) {
                Ok(current) => current.unwrap_or_default().trim().to_owned(),
                Err(error) => return Some(unknown(knob, error.to_string())),
            };
            let Ok(cpus) = current.parse::<CpuList>() else {
                return Some(unknown(
                    knob,
                    format!("'{current}' is no list of CPUs: left alone"),
                ));
            };
            let status = match cpus.without(&self.scope.housekeeping).is_empty() {
                true => Status::Ok,
                false if self.fixed.contains(&target) => Status::Fixed,
                false => Status::Miss,
            };
            let value = self.scope.housekeeping.to_string();
            let change = (status == Status::Miss).then_some((target, value));
            Some(Knob {
                current: format!("CPUs {current}"),
                status,
                change,
                ..knob
            })
        };
        let later = self.later_interrupts().into_iter();
        later.chain(numbers.into_iter().filter_map(knob)).collect()
    }

    /// Where interrupts go that nothing handles yet.
    fn later_interrupts(&self) -> Option<Knob> {
        let housekeeping = &self.scope.housekeeping;
        let target = Target::Value {
            path: LATER.to_owned(),
        };
        let knob = Knob {
            name: "interrupts to come".to_owned(),
            status: Status::Ok,
            current: String::new(),
            wanted: format!("CPUs {housekeeping}"),
            change: None,
            remedy: None,
        };
        let current = match self.host.get(&target) {
            Ok(current) => current?.trim().to_owned(),
            Err(error) => return Some(unknown(knob, error.to_string())),
        };
        let Some(cpus) = cpus_of(&current) else {
            let text = format!("'{current}' is no mask of CPUs: left alone");
            return Some(unknown(knob, text));
        };
        let cpus = cpus.and(&self.machine.online());
        let is_met = cpus.without(housekeeping).is_empty();
        Some(Knob {
            current: format!("CPUs {cpus}"),
            status: if is_met { Status::Ok } else { Status::Miss },
            change: (!is_met).then(|| (target, mask_like(&current, housekeeping))),
            ..knob
        })
    }
}

/// CPUs of a mask: hexadecimal digits, with commas.
fn cpus_of(mask: &str) -> Option<CpuList> {
    let mut cpus = CpuList::default();
    let mut first = 0;
    for digit in mask.chars().rev().filter(|&c| c != ',') {
        let bits = digit.to_digit(16)?;
        cpus.extend(
            (0..4)
                .filter(|bit| bits >> bit & 1 == 1)
                .map(|bit| first + bit),
        );
        first += 4;
    }
    (first > 0).then_some(cpus)
}

/// A mask with these CPUs, with as many digits as another: the kernel has one for all CPUs that
/// there may be, and writes it like that.
fn mask_like(mask: &str, cpus: &CpuList) -> String {
    let mut first = 0;
    let digit = |c: char| {
        if c == ',' {
            return c;
        }
        let bits = (0..4).filter(|bit| cpus.contains(first + bit));
        let digit = bits.map(|bit| 1 << bit).sum();
        first += 4;
        char::from_digit(digit, 16).unwrap_or('0')
    };
    let digits: Vec<char> = mask.chars().rev().map(digit).collect();
    digits.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_those_of_the_kernel() {
        let list = |text: &str| text.parse::<CpuList>().unwrap();
        for (mask, cpus) in [
            ("00010001", "0,16"),
            ("f", "0-3"),
            ("3,00000000,80000001", "0,31,64-65"),
        ] {
            assert_eq!(cpus_of(mask), Some(list(cpus)), "{mask}");
            let all: String = mask.replace(|c| c != ',', "f");
            assert_eq!(mask_like(&all, &list(cpus)), mask);
        }
        assert_eq!(cpus_of("0-3"), None);
        assert_eq!(cpus_of(""), None);
    }
}
