//! `verifica doctor`: what this machine and this house have, what was measured, and how to mend what is missing.
//!
//! Each protection of the sandbox comes from the self-test that also decides what the arbiter offers, and from nothing
//! else. The house is looked at as it is on the disk and, unless told not to, as others find it. Nothing is changed.

use super::output::{Failure, Out, Style, brief};
use super::{block_on, keyfile, serve, settings};
use crate::client::agent::{self as lib, HouseClient};
use crate::client::tls;
use crate::config::Config;
use crate::limits;
use crate::refusal::Exit;
use crate::sandbox::{self, JobPolicy};
use crate::time::Clock;
use crate::wire::card::DomainCard;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  verifica doctor                       this machine, and the house whose configuration is found
  verifica doctor --policy strict       whether jobs can run under another policy
  verifica doctor --offline --json")]
pub struct Args {
    /// The policy that jobs would run under
    #[arg(long, value_name = "NAME", default_value = "default")]
    policy: String,
    /// Do not ask the house's public address (network)
    #[arg(long)]
    offline: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    name: String,
    level: Level,
    seen: String,
    hint: String,
}

pub fn run(args: &Args, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    let Some(policy) = JobPolicy::named(&args.policy) else {
        let known = JobPolicy::names().join(", ");
        return Err(Failure::usage(format!("there is no policy {:?}", args.policy)).hint(format!("known: {known}")));
    };
    let host = sandbox::host();
    let mut findings = vec![Finding::new("kernel", Level::Ok, host.strip_prefix("kernel ").unwrap_or(&host), "")];
    findings.extend(protections(&policy));
    findings.push(clock());
    match settings::load_if_present(config, out)? {
        Some(config) => findings.extend(house(&config, args.offline)),
        None => findings.push(Finding::new(
            "house",
            Level::Warn,
            "no configuration here, so only the machine was looked at",
            "make one with `verifica init --domain D --dir DIR`, or name it with --config",
        )),
    }
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let (good, warnings, failures) = (count(Level::Ok), count(Level::Warn), count(Level::Fail));
    let exit = if failures == 0 { Exit::Ok } else { Exit::Fail };
    if out.json {
        let items: Vec<Value> = findings.iter().map(Finding::to_json).collect();
        out.doc(&json!({
            "schema": "verifica.doctor/1", "policy": policy.name, "items": items, "ok": good, "warnings": warnings,
            "failures": failures,
        }));
        return Ok(exit);
    }
    for finding in &findings {
        finding.show(out);
    }
    let many = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    out.line(format!("{good} ok, {}, {}", many(warnings, "warning"), many(failures, "failure")));
    Ok(exit)
}

fn protections(policy: &JobPolicy) -> Vec<Finding> {
    let test = sandbox::self_test(policy);
    let mut out: Vec<Finding> = Vec::new();
    for item in &test.items {
        let level = match (item.ok, item.required) {
            (true, _) => Level::Ok,
            (false, true) => Level::Fail,
            (false, false) => Level::Warn,
        };
        out.push(Finding::new(&item.name, level, &item.seen, &item.mend));
    }
    let (level, seen) = match &test.missing {
        None if test.holds() => (Level::Ok, format!("jobs run under the policy {}", policy.name)),
        None => (Level::Fail, "the self-test does not hold".to_owned()),
        Some((item, why)) => (Level::Fail, format!("jobs are refused under the policy {}: {item}: {why}", policy.name)),
    };
    let hint =
        if level == Level::Ok { "" } else { "mend what is marked fail above; until then exit_0 tests are undecided" };
    out.push(Finding::new("sandbox", level, seen, hint));
    out
}

/// Whether somebody keeps the clock: credentials and deadlines are judged by it.
fn clock() -> Finding {
    let running = std::fs::read_dir("/proc").into_iter().flatten().flatten().find_map(|entry| {
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        TIME_DAEMONS.iter().find(|known| name.trim() == **known)
    });
    match running {
        Some(name) => Finding::new("clock", Level::Ok, format!("kept by {name}"), ""),
        None => Finding::new(
            "clock",
            Level::Warn,
            "offset unknown: no time daemon found",
            "install chrony or systemd-timesyncd; a clock that is 5 minutes off refuses every credential",
        ),
    }
}

fn house(config: &Config, offline: bool) -> Vec<Finding> {
    let mut out = vec![store(&config.data_dir)];
    let key = settings::domain_key(config);
    out.push(match &key {
        Ok(key) => Finding::new("domain key", Level::Ok, format!("{}, private", key.public()), ""),
        Err(failure) => Finding::of("domain key", failure),
    });
    out.push(match settings::admin_token(&config.admin_token_file) {
        Ok(_) => Finding::new("admin token", Level::Ok, "private", ""),
        Err(failure) => Finding::of("admin token", &failure),
    });
    if let Some(files) = &config.tls {
        out.push(certificate(&files.cert, &files.key));
    }
    if !offline {
        let found = block_on(async {
            let house = HouseClient::new(&config.public_url, &[])?;
            let card = lib::well_known(&house).await?;
            let anchor = key.as_ref().ok().map(|key| key.public());
            Ok(DomainCard::verify(card, &config.domain, anchor.as_ref())?)
        });
        let place = format!("{}/.well-known/nyx5.json", config.public_url);
        out.push(match found {
            Ok(_) => Finding::new("discovery", Level::Ok, format!("{place} answers with this house's card"), ""),
            Err(failure) => Finding::new(
                "discovery",
                Level::Fail,
                format!("{place}: {}", failure.why.as_deref().unwrap_or(&failure.what)),
                "start the house with `verifica serve`, and let whatever stands before it pass that path",
            ),
        });
    }
    out
}

/// The store as a reader finds it; a house that runs is not disturbed.
fn store(data_dir: &Path) -> Finding {
    let path = serve::store_file(data_dir);
    if !path.exists() {
        let seen = format!("{} is not there yet", path.display());
        return Finding::new("store", Level::Warn, seen, "it is made when the house first starts");
    }
    let began = Instant::now();
    let checked = rusqlite::Connection::open_with_flags(&path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(
        |connection| {
            let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
            let answer: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
            Ok((journal, answer))
        },
    );
    let took = began.elapsed().as_millis();
    match checked {
        Ok((journal, answer)) if answer == "ok" => {
            let seen = format!("sqlite {}, {journal}; checked in {took} ms", rusqlite::version());
            Finding::new("store", Level::Ok, seen, "")
        }
        Ok((_, answer)) => Finding::new("store", Level::Fail, answer, "stop the house and restore the last copy"),
        Err(error) => {
            let seen = format!("{}: {error}", path.display());
            Finding::new(
                "store",
                Level::Fail,
                seen,
                "let this user read the folder of the data, or restore the last copy",
            )
        }
    }
}

fn certificate(cert: &Path, key: &Path) -> Finding {
    let name = "tls";
    let chain = match std::fs::read(cert) {
        Ok(pem) => tls::certificates(&pem),
        Err(error) => return Finding::of(name, &keyfile::cannot(&error, "the certificate cannot be read", cert)),
    };
    if let Err(error) = std::fs::read(key) {
        return Finding::of(name, &keyfile::cannot(&error, "the key of the certificate cannot be read", key));
    }
    let until = chain.ok().and_then(|chain| {
        let (_, leaf) = x509_parser::parse_x509_certificate(chain.first()?.as_ref()).ok()?;
        Some(leaf.validity().not_after.timestamp())
    });
    let Some(until) = until else {
        let seen = format!("{} holds no certificate that can be read", cert.display());
        return Finding::new(
            name,
            Level::Fail,
            seen,
            "name a PEM file with the certificate first and its issuers after it",
        );
    };
    let days = until.saturating_sub(lib::SystemClock.now().millis() / 1_000).div_euclid(86_400);
    let hint = "renew the certificate, then send the house SIGHUP";
    match days {
        ..0 => Finding::new(name, Level::Fail, "the certificate has ended", hint),
        0..limits::CERTIFICATE_WARN_DAYS => {
            Finding::new(name, Level::Warn, format!("certificate valid {days} more days"), hint)
        }
        _ => Finding::new(name, Level::Ok, format!("certificate valid {days} more days"), ""),
    }
}

impl Finding {
    fn new(name: &str, level: Level, seen: impl Into<String>, hint: &str) -> Finding {
        Finding { name: name.to_owned(), level, seen: seen.into(), hint: hint.to_owned() }
    }

    fn of(name: &str, failure: &Failure) -> Finding {
        let parts = [Some(&failure.what), failure.at.as_ref(), failure.why.as_ref()];
        let seen = parts.into_iter().flatten().cloned().collect::<Vec<_>>().join(": ");
        Finding::new(name, Level::Fail, seen, failure.hint.as_deref().unwrap_or_default())
    }

    fn show(&self, out: &Out) {
        let (style, word) = match self.level {
            Level::Ok => (Style::Good, "  ok"),
            Level::Warn => (Style::Doubt, "warn"),
            Level::Fail => (Style::Bad, "fail"),
        };
        out.line(format!("  {}  {:<16} {}", out.paint(style, word), self.name, brief(&self.seen, SEEN_CHARS)));
        if !self.hint.is_empty() {
            out.line(format!("  {:<4}  {:<16} hint: {}", "", "", self.hint));
        }
    }

    fn to_json(&self) -> Value {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        json!({"name": self.name, "level": level, "seen": self.seen, "hint": self.hint})
    }
}

const TIME_DAEMONS: &[&str] = &["chronyd", "ntpd", "openntpd", "systemd-timesyn", "ptp4l", "phc2sys"];
const SEEN_CHARS: usize = 160;
