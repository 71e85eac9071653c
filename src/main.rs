//! The program: hands its arguments to the command line, and ends with the code it answers.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(verifica::cli::main().code())
}
