//! Where the configuration is, and what it names: files opened, secrets read, warnings said.

use super::diagnose;
use super::keyfile;
use super::output::{Failure, Out};
use crate::client::tls;
use crate::config::{self, Config};
use crate::daemon::TlsFiles;
use crate::limits;
use crate::observe::{Deadlines, FetcherConfig};
use crate::probe::address::AddressRule;
use crate::probe::url::UrlPolicy;
use crate::refusal::Exit;
use crate::sandbox::JobPolicy;
use crate::server::Tls;
use crate::verdict::ProbePolicy;
use crate::wire::key::SigningKey;
use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

const PLACES: [&str; 2] = ["verifica.toml", "/etc/verifica/verifica.toml"];

/// Finds and reads the configuration; warnings go to stderr.
pub fn load(given: Option<&Path>, out: &Out) -> Result<Config, Failure> {
    let path = find(given)?;
    let text = std::fs::read_to_string(&path)
        .map_err(|error| keyfile::cannot(&error, "the configuration cannot be read", &path))?;
    let shown = path.display().to_string();
    let base = std::path::absolute(&path).ok().and_then(|path| path.parent().map(Path::to_owned)).unwrap_or_default();
    match config::parse(&text, &environment(), &base) {
        Ok((mut config, warnings)) => {
            if !warnings.is_empty() {
                out.say(diagnose::render(&shown, &text, &warnings, out.colours_errors()).trim_end());
            }
            if ProbePolicy::named(&config.arbiter.policy).is_none() {
                config.arbiter.policy_file = Some(probe_policy(&config.arbiter.policy)?);
            }
            config.arbiter.job_policy_file = Some(job_policy(&config.arbiter.job_policy)?);
            Ok(config)
        }
        Err(faults) => Err(diagnose::failure("the configuration", &shown, &text, &faults, out.colours_errors())),
    }
}

/// The configuration if there is one to find.
pub fn load_if_present(given: Option<&Path>, out: &Out) -> Result<Option<Config>, Failure> {
    if given.is_none() && find(None).is_err() { Ok(None) } else { load(given, out).map(Some) }
}

pub fn domain_key(config: &Config) -> Result<SigningKey, Failure> {
    let text = keyfile::read_secret(&config.domain_key_file, "the domain key").map_err(|failure| {
        named_by(failure, "domain_key_file in the configuration names it; `verifica init` makes one for a new house")
    })?;
    SigningKey::parse(&text).ok_or_else(|| {
        Failure::usage("the domain key is not the base64url text of 32 bytes").at(config.domain_key_file.display())
    })
}

/// The key before the domain key, while the house changes from one to the other: beside it, with `.old` at the end.
pub fn retiring_key(config: &Config) -> Result<Option<SigningKey>, Failure> {
    let path = retiring_file(config);
    if !path.exists() {
        return Ok(None);
    }
    let text = keyfile::read_secret(&path, "the old domain key")?;
    let key = SigningKey::parse(&text)
        .ok_or_else(|| Failure::usage("the old domain key is not the base64url text of 32 bytes").at(path.display()))?;
    // The change began and stopped before the new key was in its place.
    Ok(Some(key).filter(|old| domain_key(config).is_ok_and(|now| now.public() != old.public())))
}

pub fn retiring_file(config: &Config) -> PathBuf {
    let mut name = config.domain_key_file.clone().into_os_string();
    name.push(".old");
    name.into()
}

/// The token that a house answers to.
pub fn operators_token(config: &Config) -> Result<Zeroizing<String>, Failure> {
    let hint = "admin_token_file in the configuration names it; `verifica init` makes one for a new house";
    admin_token(&config.admin_token_file).map_err(|failure| named_by(failure, hint))
}

pub fn admin_token(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let text = keyfile::read_secret(path, "the admin token")?;
    let token = Zeroizing::new(text.trim().to_owned());
    if token.len() < ADMIN_TOKEN_MIN || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Failure::usage(format!(
            "the admin token must be at least {ADMIN_TOKEN_MIN} printable characters on one line"
        ))
        .at(path.display()));
    }
    Ok(token)
}

/// A policy that ships with the program, or one in a file.
pub fn probe_policy(name: &str) -> Result<ProbePolicy, Failure> {
    if let Some(policy) = ProbePolicy::named(name) {
        return Ok(policy);
    }
    let path = Path::new(name);
    let known = ProbePolicy::names();
    if !path.exists() && !names_a_file(name) {
        let failure = Failure::usage(format!("there is no policy {name:?}"));
        return Err(match config::nearest(name, &known) {
            Some(near) => failure.hint(format!("did you mean {near}")),
            None => failure.hint(format!("known: {}; or name a file", known.join(", "))),
        });
    }
    let text =
        std::fs::read_to_string(path).map_err(|error| keyfile::cannot(&error, "the policy cannot be read", path))?;
    ProbePolicy::parse(&text).map_err(|why| Failure::usage("the policy cannot be used").at(path.display()).why(why))
}

/// A policy for jobs that ships with the program, or one in a file.
pub fn job_policy(name: &str) -> Result<JobPolicy, Failure> {
    if let Some(policy) = JobPolicy::named(name) {
        return Ok(policy);
    }
    let path = Path::new(name);
    let known = JobPolicy::names();
    if !path.exists() && !names_a_file(name) {
        let failure = Failure::usage(format!("there is no policy {name:?} for jobs"));
        return Err(match config::nearest(name, &known) {
            Some(near) => failure.hint(format!("did you mean {near}")),
            None => failure.hint(format!("known: {}; or name a file", known.join(", "))),
        });
    }
    let text =
        std::fs::read_to_string(path).map_err(|error| keyfile::cannot(&error, "the policy cannot be read", path))?;
    JobPolicy::parse(&text).map_err(|why| Failure::usage("the policy cannot be used").at(path.display()).why(why))
}

/// Probes reach the public internet, and nothing else.
pub fn public_fetching() -> (FetcherConfig, UrlPolicy) {
    let fetching = FetcherConfig {
        allow: AddressRule::default(),
        extra_ca_pem: Vec::new(),
        resolve: Vec::new(),
        name_servers: Vec::new(),
        per_host_per_minute: limits::PER_HOST_PER_MINUTE,
        per_host_at_once: limits::PER_HOST_CONNECTIONS_MAX,
        slots: limits::PROBE_SLOTS_DEFAULT,
        deadlines: Deadlines::default(),
    };
    (fetching, UrlPolicy::default())
}

/// Probes reach what a house's configuration says.
pub fn fetching_of(config: &Config) -> Result<(FetcherConfig, UrlPolicy), Failure> {
    let read = |path: &PathBuf| {
        let pem = std::fs::read(path)
            .map_err(|error| keyfile::cannot(&error, "a file of probe.extra_ca cannot be read", path))?;
        certificates(&pem, "a file of probe.extra_ca cannot be used", path)?;
        Ok::<_, Failure>(pem)
    };
    let fetching = FetcherConfig {
        allow: config.addresses(),
        extra_ca_pem: config.probe.extra_ca.iter().map(read).collect::<Result<_, _>>()?,
        resolve: config.probe.resolve.clone(),
        name_servers: Vec::new(),
        per_host_per_minute: config.policy().per_host_per_minute,
        per_host_at_once: limits::PER_HOST_CONNECTIONS_MAX,
        slots: config.arbiter.probe_slots,
        deadlines: Deadlines::default(),
    };
    Ok((fetching, UrlPolicy { addresses: config.addresses() }))
}

/// Whether a PEM text holds certificates, and nothing that only looks like one.
pub fn certificates(pem: &[u8], what: &str, path: &Path) -> Result<(), Failure> {
    let read = tls::certificates(pem).and_then(|read| tls::roots(&read));
    read.map(|_| ()).map_err(|why| Failure::usage(what).at(path.display()).why(why))
}

/// The certificate and the key of `[tls]`, looked at before anything listens. A key that everybody on this host can read
/// is no secret; a group may, as certificate tools arrange it.
pub fn tls_files(config: &Config) -> Result<Option<TlsFiles>, Failure> {
    let Some(files) = &config.tls else { return Ok(None) };
    let read = |path: &PathBuf, what: &str| {
        std::fs::read(path).map_err(|error| keyfile::cannot(&error, &format!("{what} of [tls] cannot be read"), path))
    };
    let (certificate, key) = (read(&files.cert, "the certificate")?, Zeroizing::new(read(&files.key, "the key")?));
    let mode = std::fs::metadata(&files.key).map(|meta| meta.mode() & 0o777).unwrap_or_default();
    if mode & 0o007 != 0 {
        return Err(Failure::usage(format!(
            "the key of [tls] is open to everybody on this host: its mode is {mode:04o}"
        ))
        .at(files.key.display())
        .hint(format!("chmod 600 {}", files.key.display())));
    }
    certificates(&certificate, "the certificate of [tls] cannot be used", &files.cert)?;
    Tls::from_pem(&certificate, &key)
        .map_err(|why| Failure::usage("the key of [tls] cannot be used").at(files.key.display()).why(why))?;
    Ok(Some(TlsFiles { certificates: files.cert.clone(), key: files.key.clone() }))
}

/// A folder with this mode, and those above it; one that is there already stays as it is.
pub fn make_folder(path: &Path, mode: u32) -> Result<(), Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|error| keyfile::cannot(&error, "the folder cannot be made", path))
}

fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    PLACES.iter().map(PathBuf::from).find(|path| path.exists()).ok_or_else(|| {
        Failure::new(Exit::Usage, "there is no configuration")
            .why(format!("looked for {}", PLACES.join(" and ")))
            .hint("make one with `verifica init --domain D --dir DIR`, or name it with --config")
    })
}

/// Only what is UTF-8 can be a key of ours. A value that is not shows as one that no key takes, and is not ignored.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .collect()
}

fn named_by(failure: Failure, hint: &str) -> Failure {
    if failure.hint.is_some() { failure } else { failure.hint(hint) }
}

/// As the configuration tells a path from a name.
fn names_a_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

const ADMIN_TOKEN_MIN: usize = 16;
