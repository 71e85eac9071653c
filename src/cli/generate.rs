//! `verifica generate`: what a package needs beside the program, made from its own grammar.

use super::keyfile;
use super::output::{Failure, Out};
use crate::refusal::Exit;
use clap_complete::Shell;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Completions for a shell, on stdout
    Completions {
        /// bash, elvish, fish, powershell or zsh
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Manual pages: the first on stdout, or all of them in a folder
    Man {
        /// Where to put verifica.1 and one page for each command
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

pub fn run(command: &Command, mut grammar: clap::Command, out: &Out) -> Result<Exit, Failure> {
    match command {
        Command::Completions { shell } => {
            let mut bytes = Vec::new();
            clap_complete::generate(*shell, &mut grammar, "verifica", &mut bytes);
            out.raw(&bytes);
        }
        Command::Man { dir: None } => {
            let mut bytes = Vec::new();
            let made = clap_mangen::Man::new(grammar).render(&mut bytes);
            made.map_err(|error| Failure::new(Exit::Disk, "the page cannot be written").why(error))?;
            out.raw(&bytes);
        }
        Command::Man { dir: Some(dir) } => {
            let fault = |error| keyfile::cannot(&error, "the pages cannot be written", dir);
            std::fs::create_dir_all(dir).map_err(fault)?;
            clap_mangen::generate_to(grammar, dir).map_err(fault)?;
            if out.json {
                out.doc(&json!({"schema": "verifica.generate/1", "folder": dir.display().to_string()}));
            } else {
                out.say(format!("pages written to {}", dir.display()));
            }
        }
    }
    Ok(Exit::Ok)
}
