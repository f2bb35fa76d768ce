use std::sync::OnceLock;

static COMMIT: OnceLock<&'static str> = OnceLock::new();

/// Sets the commit of the sources, an empty one if it is not known. A program calls this before
/// anything asks for its version; only the first call counts.
///
/// The commit comes from the program's own file, not from here: else each commit would compile all
/// crates anew.
pub fn set_commit(commit: &'static str) {
    let _only_the_first = COMMIT.set(commit);
}

/// The commit of the sources: its first hexadecimal digits, and `.modified` if the sources were not
/// as committed. `unknown` in programs that set none.
pub fn karoo_commit() -> &'static str {
    let commit = COMMIT.get().copied().filter(|text| !text.is_empty());
    commit.unwrap_or("unknown")
}

/// The version of Karoo, with the commit if that is known: `0.1.0+0798bb07`.
pub fn karoo_version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| version_of(karoo_commit()))
}

fn version_of(commit: &str) -> String {
    let version = KAROO_VERSION;
    match commit {
        "unknown" => version.to_owned(),
        commit => format!("{version}+{commit}"),
    }
}

/// The version of Karoo without the commit.
pub const KAROO_VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_the_commit_that_was_set_first() {
        assert_eq!(karoo_commit(), "unknown");
        assert_eq!(version_of(karoo_commit()), KAROO_VERSION);
        set_commit("0798bb07");
        set_commit("11111111");
        assert_eq!(karoo_commit(), "0798bb07");
        assert_eq!(karoo_version(), format!("{KAROO_VERSION}+0798bb07"));
    }
}
