//! The `karoo` binary: nothing but the call into [`karoo::cli`].

fn main() -> std::process::ExitCode {
    karoo::cli::main()
}
