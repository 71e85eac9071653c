//! `verifica serve`: the house of a configuration, in the foreground, until a signal or the disk ends it.
//!
//! One line on stderr says when it is ready. SIGTERM and SIGINT drain and end with 0, a second one ends at once; SIGHUP
//! reads the certificate again. Logs go to stderr: text for a terminal, one JSON object a line otherwise.

use super::init_logs;
use super::keyfile;
use super::output::{Failure, Out};
use super::settings;
use crate::client::resolver::HostOverride;
use crate::config::{AttachmentsKind, Config};
use crate::daemon::{self, ArbiterOptions, Ended, Listen, ServeError, ServeOptions};
use crate::objects::{BucketConfig, Place};
use crate::observe::Fetcher;
use crate::observe::jobs::{Jobs, JobsConfig};
use crate::probe::plan::{Capabilities, Suite};
use crate::probe::url::UrlPolicy;
use crate::refusal::Exit;
use crate::sandbox::JobPolicy;
use crate::store::StoreError;
use crate::wire::address::SystemName;
use crate::wire::key::SigningKey;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Listen here and not where the configuration says
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// How to log
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    log: Log,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Log {
    /// Text on a terminal, JSON otherwise
    #[default]
    Auto,
    Text,
    Json,
}

impl Log {
    pub fn json(self) -> bool {
        match self {
            Log::Auto => !std::io::stderr().is_terminal(),
            Log::Text => false,
            Log::Json => true,
        }
    }
}

pub fn run(args: &Args, config: Option<&Path>, verbose: u8, out: &Out) -> Result<Exit, Failure> {
    let mut config = settings::load(config, out)?;
    if let Some(listen) = args.listen {
        config.listen = listen;
    }
    init_logs(1, verbose, args.log.json());
    let options = options(&config, Listen::At(config.listen))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::new(Exit::Disk, "the program cannot start its event loop").why(error))?;
    let ended = runtime.block_on(async {
        let running = daemon::serve(options).await.map_err(failure)?;
        out.err(format!("ready {} as {}, listening on {}", config.public_url, config.domain, running.local_addr));
        daemon::until_ended(running)
            .await
            .map_err(|error| Failure::new(Exit::Disk, "signals cannot be watched").why(error))
    })?;
    settle(ended, out)
}

/// How the process ends, said.
pub fn settle(ended: Ended, out: &Out) -> Result<Exit, Failure> {
    Ok(match ended {
        Ended::InOrder(drained) => {
            if drained.connections_cut + drained.workers_cut > 0 {
                out.err(format!(
                    "stopped; {} connections and {} workers were cut at the deadline, their work is kept for the next start",
                    drained.connections_cut, drained.workers_cut
                ));
            } else {
                out.say("stopped in order");
            }
            if drained.store_closed { Exit::Ok } else { Exit::Disk }
        }
        Ended::AtOnce => {
            out.err("stopped at once by a second signal; what was under way comes back with the next start");
            Exit::Fail
        }
        Ended::StoreFailed(why) => {
            return Err(Failure::new(Exit::Disk, "the disk failed, so nothing more was acknowledged").why(why));
        }
    })
}

/// All that the daemon needs, from a configuration; reads the secrets that it names.
pub fn options(config: &Config, listen: Listen) -> Result<ServeOptions, Failure> {
    settings::make_folder(&config.data_dir, 0o700)?;
    let key = settings::domain_key(config)?;
    let policy = config.job_policy().ok_or_else(|| Failure::usage("there is no policy for jobs"))?;
    let looks = config.arbiter.enabled && !config.arbiter.elsewhere;
    let capabilities = if looks { Jobs::offered_here(&policy) } else { Capabilities::network() };
    let mut house = config.house(key.clone(), capabilities);
    house.retiring = settings::retiring_key(config)?;
    let mut options = ServeOptions::new(house, listen, store_file(&config.data_dir));
    options.tls = settings::tls_files(config)?;
    options.trusted_proxies = config.trusted_proxies.clone();
    options.admin_token = Some(settings::operators_token(config)?.to_string().into());
    options.attachments = attachments(config)?;
    let known = config.hosts.iter();
    options.hosts =
        known.map(|(domain, host)| (domain.clone(), HostOverride { url: host.url.clone(), sig: host.sig })).collect();
    if looks {
        options.arbiter = Some(arbiter(config, policy, key)?);
    }
    Ok(options)
}

fn attachments(config: &Config) -> Result<Place, Failure> {
    let beside = config.data_dir.join("attachments");
    let section = match &config.attachments.kind {
        AttachmentsKind::None => return Ok(Place::Nowhere),
        AttachmentsKind::Local => return Ok(Place::Folder(beside)),
        AttachmentsKind::S3(section) => section,
    };
    let path = &section.credentials_file;
    let text = keyfile::read_secret(path, "the credentials of the bucket")?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let (Some(access), Some(secret), None) = (lines.next(), lines.next(), lines.next()) else {
        let failure = Failure::usage("the credentials of the bucket are not two lines").at(path.display());
        return Err(failure.hint("write the access key on the first line and its secret on the second"));
    };
    let bucket = BucketConfig {
        bucket: section.bucket.clone(),
        region: section.region.clone(),
        endpoint: section.endpoint.clone(),
        access_key: access.to_owned(),
        secret_key: secret.to_owned().into(),
    };
    Ok(Place::Bucket(Box::new(bucket), beside))
}

/// What the arbiter looks through; attestations of jobs are signed with `key`.
pub fn arbiter(config: &Config, policy: JobPolicy, key: SigningKey) -> Result<ArbiterOptions, Failure> {
    let (fetching, _) = settings::fetching_of(config)?;
    let slots = fetching.slots;
    let fetcher = Fetcher::new(fetching).map_err(|error| Failure::usage(error.to_string()))?;
    let tick = Duration::from_millis(config.arbiter.tick_ms.unsigned_abs());
    let by = config.domain.system(SystemName::Verifica).to_string();
    let at_once = config.arbiter.job_slots;
    let house = Some(config.domain.to_string());
    let jobs = Jobs::new(JobsConfig { policy, at_once, key, house, by: Some(by) });
    let control = config.arbiter.control_url.as_ref().map(|url| {
        let test = serde_json::json!([{"type": "http_status", "url": url, "name": "control"}]);
        let urls = UrlPolicy { addresses: config.addresses() };
        Arc::new(Suite::from_tests(&test, &urls, &Capabilities::network()))
    });
    Ok(ArbiterOptions { fetcher, control, slots, tick, jobs: Some(jobs) })
}

pub fn store_file(data_dir: &Path) -> PathBuf {
    data_dir.join("house.db")
}

pub fn failure(error: ServeError) -> Failure {
    let said = error.to_string();
    match error {
        ServeError::Setup(why) => Failure::usage(why),
        ServeError::Listen { at, error } => {
            let failure = Failure::new(Exit::Unreachable, "the house cannot listen").at(at).why(&error);
            if error.kind() == std::io::ErrorKind::AddrInUse {
                return failure
                    .hint("another program listens there; stop it, or choose another address with listen or --listen");
            }
            failure
        }
        ServeError::Store { path, error } => store_failure(&path, &error),
        ServeError::AnotherHouse { path, .. } => {
            Failure::usage(said).at(path.display()).hint("choose another data_dir")
        }
        ServeError::Objects(fault) => Failure::new(Exit::Disk, "the attachments cannot be opened").why(fault),
        ServeError::Cards(refusal) => Failure::from(refusal),
    }
}

pub fn store_failure(path: &Path, error: &StoreError) -> Failure {
    let failure = Failure::new(Exit::Disk, "the store cannot be opened").at(path.display()).why(error);
    match error {
        StoreError::Newer { .. } => failure.hint("a newer version wrote it; run that version"),
        StoreError::Locked => failure.hint("another process has it open; only one house may"),
        _ => failure,
    }
}
