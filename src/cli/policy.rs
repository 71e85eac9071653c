//! `verifica policy`: the rules that ship with the program, shown with their reasons, and a file of rules checked.
//!
//! There are two kinds: how network tests look, and what a job of an `exit_0` test may do. The schema of a file says which
//! it is.

use super::keyfile;
use super::output::{Failure, Out};
use crate::config;
use crate::refusal::Exit;
use crate::sandbox::JobPolicy;
use crate::verdict::ProbePolicy;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show a policy for jobs with the reason of each rule, or the names of all
    Show {
        /// A policy that ships with the program
        name: Option<String>,
    },
    /// Check a file of rules, for jobs or for network tests
    #[command(after_help = "Example:\n  verifica policy show strict > mine.toml && verifica policy validate mine.toml")]
    Validate {
        /// A TOML file
        file: PathBuf,
    },
}

pub fn run(command: &Command, out: &Out) -> Result<Exit, Failure> {
    match command {
        Command::Show { name: None } => list(out),
        Command::Show { name: Some(name) } => show(name, out),
        Command::Validate { file } => validate(file, out),
    }
}

fn list(out: &Out) -> Result<Exit, Failure> {
    let all = JobPolicy::names().into_iter().filter_map(JobPolicy::named);
    let all: Vec<Value> = all.map(|policy| described(&policy)).collect();
    if out.json {
        out.doc(&json!({"schema": "verifica.policies/1", "policies": all}));
        return Ok(Exit::Ok);
    }
    for policy in &all {
        let text = |name: &str| policy.get(name).map(|value| value.to_string()).unwrap_or_default();
        let name = policy.get("name").and_then(Value::as_str).unwrap_or_default();
        let required = policy.get("required").and_then(Value::as_array).map_or(0, Vec::len);
        out.line(format!(
            "{name:<10} {} s wall, {} runs, {required} protections required",
            text("wall_s"),
            text("runs")
        ));
    }
    Ok(Exit::Ok)
}

fn show(name: &str, out: &Out) -> Result<Exit, Failure> {
    let (Some(policy), Some(source)) = (JobPolicy::named(name), JobPolicy::source(name)) else {
        let known = JobPolicy::names();
        let failure = Failure::usage(format!("there is no policy {name:?}"));
        return Err(match config::nearest(name, &known) {
            Some(near) => failure.hint(format!("did you mean {near}")),
            None => failure.hint(format!("known: {}", known.join(", "))),
        });
    };
    if out.json {
        out.doc(&described(&policy))
    } else {
        out.raw(source.as_bytes())
    }
    Ok(Exit::Ok)
}

fn validate(file: &Path, out: &Out) -> Result<Exit, Failure> {
    let text =
        std::fs::read_to_string(file).map_err(|error| keyfile::cannot(&error, "the policy cannot be read", file))?;
    let fault = |why: String| Failure::usage("the policy cannot be used").at(file.display()).why(why);
    let schema = text.parse::<toml::Table>().map_err(|error| fault(error.message().to_owned()))?;
    let network = schema.get("schema").and_then(toml::Value::as_str) == Some(NETWORK);
    let (kind, name, sha256) = if network {
        let policy = ProbePolicy::parse(&text).map_err(fault)?;
        ("network tests", policy.name.clone(), policy.stated().sha256)
    } else {
        let policy = JobPolicy::parse(&text).map_err(fault)?;
        ("jobs", policy.name.clone(), policy.sha256())
    };
    if out.json {
        out.doc(
            &json!({"schema": "verifica.policy-check/1", "valid": true, "for": kind, "name": name, "sha256": sha256}),
        );
    } else {
        out.line(format!("valid  {name}, a policy for {kind}, sha256 {sha256}"));
    }
    Ok(Exit::Ok)
}

fn described(policy: &JobPolicy) -> Value {
    let mut doc = serde_json::to_value(policy).unwrap_or_default();
    doc["schema"] = json!("verifica.policy-shown/1");
    doc["sha256"] = json!(policy.sha256());
    doc
}

const NETWORK: &str = "verifica.policy/1";
