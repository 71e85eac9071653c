//! The command line: arguments in, one command run, an exit code out.
//!
//! Data goes to stdout, everything else to stderr; the codes are [`Exit`] and nothing else. A panic ends with 70 and
//! says that it is a bug. Deliberately absent: rules of any kind; every command is thin over a room below.

mod agent;
mod check;
mod deal;
mod demo;
mod diagnose;
mod doctor;
mod files;
mod generate;
mod handover;
mod house;
mod init;
mod json_source;
mod keyfile;
mod libro;
mod output;
mod people;
mod policy;
mod replay;
mod search;
mod serve;
mod settings;
mod talk;
mod verify;
mod version;
mod watch;
mod who;

use crate::refusal::Exit;
use clap::{CommandFactory, Parser, Subcommand};
use output::{Failure, Out, When};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// An arbiter of escrow contracts between agents, and the house it lives in.
#[derive(Debug, Parser)]
#[command(name = "verifica", version, propagate_version = true, after_help = EXIT_CODES, max_term_width = 100)]
struct Cli {
    /// The configuration of the house [default: ./verifica.toml, then /etc/verifica/verifica.toml]
    #[arg(long, short, global = true, value_name = "FILE", env = "VERIFICA_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
    /// Answer with one JSON document on stdout, failures included
    #[arg(long, global = true)]
    json: bool,
    /// When to colour
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        env = "VERIFICA_COLOR",
        hide_env_values = true
    )]
    color: When,
    /// Say only the answer
    #[arg(long, short, global = true)]
    quiet: bool,
    /// Say more on stderr; twice for debugging
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See it all: a house, a buyer, a seller, one escrow that passes and one that fails
    Demo(demo::Args),
    /// Create a house: its configuration, its keys and its store
    Init(init::Args),
    /// Run the house in the foreground (network)
    Serve(serve::Args),
    /// Run the arbiter alone, beside a house that another program runs
    Watch(watch::Args),
    /// Run the tests of a contract here, and say what the arbiter would say (network)
    Check(check::Args),
    /// Judge stored evidence again, offline: the same answers must come out
    Replay(replay::Args),
    /// Check a signed document: a verdict, a receipt, an envelope, an entry, a quote, a card
    Verify(verify::Args),
    /// Be an agent: keys, registration and mail
    #[command(subcommand)]
    Agent(agent::Command),
    /// Be the operator: invitations, the keys of other houses, the house's own key
    #[command(subcommand)]
    House(house::Command),
    /// Deal and pay: quotes, escrows, payments and accounts
    #[command(subcommand)]
    Libro(libro::Command),
    /// Show what jobs may do, or check a file of rules
    #[command(subcommand)]
    Policy(policy::Command),
    /// Look at this machine and this house: what holds, what was measured, how to mend the rest (network)
    Doctor(doctor::Args),
    /// Say what this build is and what this machine offers
    Version,
    /// Write completions or manual pages
    #[command(subcommand)]
    Generate(generate::Command),
}

/// Runs the program on the arguments of the process.
pub fn main() -> Exit {
    guard(|| run(std::env::args_os()))
}

/// Runs one command line; the first argument is the name of the program.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Exit {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        // Help and version are answers; everything else is a wrong call.
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            return Exit::Ok;
        }
        Err(error) => {
            let json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
            if !json {
                let _ = error.print();
                return Exit::Usage;
            }
            let out = Out::new(true, false, When::Never);
            return out.settle(out.fail(&wrong_call(&error)));
        }
    };
    let out = Out::new(cli.json, cli.quiet, cli.color);
    let exit = match dispatch(cli, &out) {
        Ok(exit) => exit,
        Err(failure) => out.fail(&failure),
    };
    out.settle(exit)
}

/// What clap says of a wrong call: its first line is what, the rest is how to mend it.
fn wrong_call(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let what = lines.next().unwrap_or("the arguments cannot be read");
    let failure = Failure::usage(what.strip_prefix("error: ").unwrap_or(what));
    let rest: Vec<&str> = lines.collect();
    if rest.is_empty() { failure } else { failure.hint(rest.join("; ")) }
}

/// What the rooms below report goes to stderr: from warnings on, more with `-v`, or as `VERIFICA_LOG` says.
fn init_logs(base: u8, verbose: u8, json: bool) {
    let level = ["warn", "info", "debug", "trace"][usize::from(base.saturating_add(verbose).min(3))];
    let asked = std::env::var("VERIFICA_LOG").ok().filter(|text| !text.is_empty());
    let filter = match asked.map(tracing_subscriber::EnvFilter::try_new) {
        Some(Ok(filter)) => filter,
        usual => {
            if let Some(Err(error)) = usual {
                eprintln!("warning: VERIFICA_LOG is not understood: {error}; write a level, such as debug");
            }
            tracing_subscriber::EnvFilter::new(format!("off,verifica={level}"))
        }
    };
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colour);
    // A second call in one process finds the first one's subscriber, which serves as well.
    let _ = if json { logs.json().flatten_event(true).try_init() } else { logs.try_init() };
}

fn dispatch(cli: Cli, out: &Out) -> Result<Exit, Failure> {
    let config = cli.config.as_deref();
    if !matches!(cli.command, Command::Serve(_) | Command::Watch(_)) {
        init_logs(0, cli.verbose, false);
    }
    match cli.command {
        Command::Demo(args) => demo::run(&args, out),
        Command::Serve(args) => serve::run(&args, config, cli.verbose, out),
        Command::Watch(args) => watch::run(&args, config, cli.verbose, out),
        Command::Init(args) => init::run(&args, out),
        Command::Check(args) => check::run(&args, config, out),
        Command::Replay(args) => replay::run(&args, out),
        Command::Verify(args) => verify::run(&args, out),
        Command::Agent(command) => agent::run(&command, out),
        Command::House(command) => house::run(&command, config, out),
        Command::Libro(command) => libro::run(&command, config, out),
        Command::Policy(command) => policy::run(&command, out),
        Command::Doctor(args) => doctor::run(&args, config, out),
        Command::Version => version::run(out),
        Command::Generate(command) => generate::run(&command, Cli::command(), out),
    }
}

/// Runs `work`; a panic in it is reported as the bug it is and ends with its own code.
fn guard(work: impl FnOnce() -> Exit) -> Exit {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
        let said = info.payload_as_str().unwrap_or("no message");
        eprintln!("bug: verifica {} stopped{place}: {said}", env!("CARGO_PKG_VERSION"));
        eprintln!("hint: this is a fault of the program, not yours; report it with the command and the line above");
    }));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Exit::Bug)
}

/// Runs a command that talks to the network, on one thread.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|error| Failure::new(Exit::Disk, "the program cannot start its event loop").why(error))?
        .block_on(work)
}

const EXIT_CODES: &str = "\
Exit codes:
   0  did what was asked; check: pass
   1  the answer is no; check: fail; verify: not valid
   2  wrong flags, or a file that cannot be read or parsed
   3  undecided; verify: the signer was not established
   4  the sandbox that the policy demands cannot be enforced here
   5  refused by a rule
  69  the house or a peer cannot be reached
  70  a bug
  74  the store or the disk failed";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_argument_says_what_it_is() {
        fn walk(command: &clap::Command, silent: &mut Vec<String>) {
            let said = |argument: &&clap::Arg| argument.get_help().is_none();
            silent
                .extend(command.get_arguments().filter(said).map(|a| format!("{} {}", command.get_name(), a.get_id())));
            command.get_subcommands().for_each(|below| walk(below, silent));
        }
        let mut silent = Vec::new();
        walk(&Cli::command(), &mut silent);
        assert_eq!(silent, Vec::<String>::new());
    }

    #[test]
    fn a_panic_is_a_bug_and_ends_with_seventy() {
        assert_eq!(guard(|| panic!("on purpose")), Exit::Bug);
        assert_eq!(guard(|| Exit::Fail), Exit::Fail);
    }

    #[test]
    fn every_exit_code_is_explained() {
        for exit in Exit::ALL {
            assert!(EXIT_CODES.contains(&format!("{:>4}  ", exit.code())), "{exit:?}");
        }
    }
}
