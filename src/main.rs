//! The program: hands its arguments to the command line, and ends with the code it answers.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The launcher of a job is this program too; nothing else may happen in it first.
    if std::env::args_os().nth(1).is_some_and(|word| word == verifica::sandbox::ENTRY) {
        verifica::sandbox::launcher_main();
    }
    ExitCode::from(verifica::cli::main().code())
}
