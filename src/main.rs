//! The `karoo` binary: nothing but the call into [`karoo::cli`], and the commit, so that after a
//! commit this file alone is compiled anew.

/// The commit of the sources, with `.modified` if they were not as committed: `KAROO_COMMIT` of a
/// build that has no git to ask, else what git says, else empty.
const COMMIT: &str = match option_env!("KAROO_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => git_version::git_version!(
        args = ["--always", "--abbrev=8", "--exclude=*", "--dirty=.modified"],
        fallback = ""
    ),
};

fn main() -> std::process::ExitCode {
    karoo::cli::main(COMMIT)
}
