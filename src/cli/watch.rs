//! `verifica watch`: the arbiter alone, beside a house that another program runs.
//!
//! The configuration is that of a house, read as the arbiter needs it: `domain` and `public_url` say which house,
//! `domain_key_file` holds the key of verifica@, `data_dir` is the arbiter's own, `[arbiter]` and `[probe]` are as in
//! `serve`; `sig` of the house's own entry in `[hosts]` pins its card. Signals and logs are those of `serve`.

use super::init_logs;
use super::output::{Failure, Out};
use super::serve::{self, Log};
use super::settings;
use super::who::extra_roots;
use crate::client::agent::SystemClock;
use crate::config::Config;
use crate::daemon::{self, WatchOptions};
use crate::limits;
use crate::observe::jobs::Jobs;
use crate::refusal::Exit;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A PEM file of roots to trust beside the compiled-in ones when the house is called
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
    /// How to log
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    log: Log,
}

pub fn run(args: &Args, config: Option<&Path>, verbose: u8, out: &Out) -> Result<Exit, Failure> {
    let config = settings::load(config, out)?;
    init_logs(1, verbose, args.log.json());
    let options = options(&config, &args.ca)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::new(Exit::Disk, "the program cannot start its event loop").why(error))?;
    let ended = runtime.block_on(async {
        let running = daemon::watch(options).await.map_err(serve::failure)?;
        out.err(format!("watching {} as verifica@{}", config.public_url, config.domain));
        daemon::until_ended(running)
            .await
            .map_err(|error| Failure::new(Exit::Disk, "signals cannot be watched").why(error))
    })?;
    serve::settle(ended, out)
}

fn options(config: &Config, ca: &[PathBuf]) -> Result<WatchOptions, Failure> {
    settings::make_folder(&config.data_dir, 0o700)?;
    let key = settings::domain_key(config)?;
    let policy = config.job_policy().ok_or_else(|| Failure::usage("there is no policy for jobs"))?;
    Ok(WatchOptions {
        house: config.house(key.clone(), Jobs::offered_here(&policy)),
        store: config.data_dir.join("watch.db"),
        house_key: config.hosts.get(&config.domain).and_then(|host| host.sig),
        extra_roots: extra_roots(ca)?,
        clock: Arc::new(SystemClock),
        arbiter: serve::arbiter(config, policy, key)?,
        drain: Duration::from_millis(limits::DRAIN_MS),
    })
}
