//! Sets of CPUs as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(BTreeSet<usize>);

/// Not a set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a list of CPUs: write 0-3,8")]
pub struct CpuListError(String);

impl CpuList {
    /// Largest number of a CPU. Larger ones are mistakes: the kernel has 8192 CPUs at most.
    pub const LARGEST: usize = (1 << 16) - 1;

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `cpu` is one of them.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// The lowest.
    pub fn first(&self) -> Option<usize> {
        self.0.first().copied()
    }

    /// The CPUs that `other` has not.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// The CPUs that `other` has too.
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }
}

impl FromIterator<usize> for CpuList {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl Extend<usize> for CpuList {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, cpus: I) {
        self.0.extend(cpus);
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let wrong = || CpuListError(text.to_owned());
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().map_err(|_| wrong())?;
            let last: usize = last.trim().parse().map_err(|_| wrong())?;
            if first > last || last > Self::LARGEST {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            // They ascend.
            while let Some(next) = rest.next_if(|next| next - last == 1) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for CpuList {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CpuList".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Vec::<usize>::json_schema(generator)
    }
}

impl serde::Serialize for CpuList {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_notation_is_read() {
        let list: CpuList = "0-2,5,7-8\n".parse().unwrap();
        assert_eq!(list.iter().collect::<Vec<_>>(), [0, 1, 2, 5, 7, 8]);
        assert_eq!("".parse::<CpuList>().unwrap(), CpuList::default());
        for wrong in ["a", "3-1", "1-", "-1", "0-65536", "0-99999999999", "(null)"] {
            assert!(wrong.parse::<CpuList>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_largest_numbers_are_written() {
        let list: CpuList = [usize::MAX, 3, usize::MAX - 1].into_iter().collect();
        let expected = format!("3,{}-{}", usize::MAX - 1, usize::MAX);
        assert_eq!(list.to_string(), expected);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(cpus in prop::collection::btree_set(0usize..300, 0..80)) {
            let list: CpuList = cpus.into_iter().collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }
    }
}
