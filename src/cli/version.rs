//! `verifica version`: what this build is, what its store is, and what this machine offers.

use super::output::{Failure, Out};
use super::settings;
use crate::observe::jobs::Jobs;
use crate::refusal::Exit;
use serde_json::{Value, json};

pub fn run(out: &Out) -> Result<Exit, Failure> {
    let facts = facts()?;
    if out.json {
        out.doc(&facts);
        return Ok(Exit::Ok);
    }
    let text = |name: &str| {
        facts.get(name).map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).unwrap_or_default()
    };
    out.line(format!("verifica {}", text("version")));
    for name in ["protocol", "rules", "target", "kernel", "sqlite", "tests"] {
        out.line(format!("{name:<10} {}", text(name)));
    }
    Ok(Exit::Ok)
}

fn facts() -> Result<Value, Failure> {
    let offered = Jobs::offered_here(&settings::job_policy("default")?).names().join(" ");
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned()).ok();
    Ok(json!({
        "schema": "verifica.version/1",
        "version": env!("CARGO_PKG_VERSION"),
        "protocol": "nyx5/1",
        "rules": crate::verdict::RULES,
        "target": format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        "kernel": kernel,
        "sqlite": rusqlite::version(),
        // What the self-test of the sandbox allows; `doctor` says what is missing for the rest.
        "tests": offered,
    }))
}
