//! `verifica replay`: judge stored observations again, offline. Every outcome and every reason must come out as it was
//! recorded, to the byte (V61), and a signed verdict in the file must be the verdict on exactly this evidence; what does
//! not hold is shown and the code is 1. The code says nothing about what the verdict was: an auditor asks whether it is
//! true.

use super::json_source;
use super::keyfile;
use super::output::{Failure, Out, Style, brief, clean};
use crate::attest::bound;
use crate::refusal::Exit;
use crate::verdict::{check_json, replay_with};
use crate::wire::digest::Sha256;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  verifica check tests.json --evidence-out seen.json && verifica replay seen.json
  verifica libro evidence CONTRACT --out seen.json && verifica replay seen.json

Ends with 0 when everything recorded comes out again, whatever the verdict was; with 1 when something does not; with 2
when the file cannot be judged. Whose key signed the verdict is not asked here: see `verifica verify`.")]
pub struct Args {
    /// An evidence file, or - for stdin
    file: PathBuf,
    /// A folder with observations that the file only names: each under its SHA-256
    #[arg(long, value_name = "DIR")]
    observations: Option<PathBuf>,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit, Failure> {
    let evidence = json_source::read_file(&args.file, out)?.value;
    let load = |name: &Sha256| {
        let folder = args.observations.as_ref()?;
        let hex = name.hex();
        [hex.clone(), format!("{hex}.json")].iter().find_map(|name| std::fs::read(folder.join(name)).ok())
    };
    if let Some(folder) = args.observations.as_ref().filter(|folder| !folder.is_dir()) {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(keyfile::cannot(&error, "the folder of observations cannot be read", folder));
    }
    let mut replayed = replay_with(&evidence, &load)
        .map_err(|why| Failure::usage("the evidence cannot be judged").at(args.file.display()).why(why))?;
    let (checks, differences) = bound(&evidence);
    replayed.checks.extend(checks);
    replayed.differences.extend(differences);
    let exit = if replayed.same() { Exit::Ok } else { Exit::Fail };
    if out.json {
        let mut doc = check_json(&replayed.results);
        doc["schema"] = "verifica.replay/1".into();
        doc["same"] = replayed.same().into();
        doc["rules"] = replayed.rules.as_str().into();
        doc["checks"] = json!(replayed.checks);
        doc["differences"] = json!(replayed.differences);
        out.doc(&doc);
        return Ok(exit);
    }
    if out.quiet {
        out.line(if replayed.same() { replayed.joint.verdict.word() } else { "different" });
        return Ok(exit);
    }
    for result in &replayed.results {
        let word = result.outcome.word().to_uppercase();
        let name = result.name.as_deref().unwrap_or("-");
        out.line(format!(
            "{word:>10} {:<12} {:<16} {}",
            brief(&result.test_type, 12),
            brief(name, 24),
            brief(&result.reason, 160)
        ));
    }
    if replayed.same() {
        let style = Style::Good;
        out.line(format!(
            "{}   every outcome and reason came out again   verdict {}",
            out.paint(style, "same"),
            replayed.joint.verdict.word()
        ));
    } else {
        out.line(format!(
            "{}   {} of what was recorded does not come out again",
            out.paint(Style::Bad, "different"),
            replayed.differences.len()
        ));
        replayed.differences.iter().for_each(|difference| out.line(format!("  - {}", clean(difference))));
    }
    out.say("checks made");
    replayed.checks.iter().for_each(|check| out.say(format!("  - {}", clean(check))));
    out.say(format!("judged by the rules {}", replayed.rules));
    Ok(exit)
}
