//! Who acts: the identity file of an agent, opened only when nobody else can read it.

use super::keyfile;
use super::output::Failure;
use crate::client::agent::{AgentClient, ClientError, Identity, Options};
use crate::client::tls;
use crate::refusal::{Exit, Rule};
use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
pub struct Who {
    /// The identity that acts: a file, or a folder with agent.json in it
    #[arg(
        long = "as",
        value_name = "FILE",
        env = "VERIFICA_AGENT",
        default_value = "agent.json",
        hide_env_values = true
    )]
    pub identity: PathBuf,
    /// A PEM file of roots to trust beside the compiled-in ones
    #[arg(long, value_name = "FILE")]
    pub ca: Vec<PathBuf>,
}

impl Who {
    pub fn path(&self) -> PathBuf {
        identity_path(&self.identity)
    }

    pub fn load(&self) -> Result<Identity, Failure> {
        let path = self.path();
        let text = keyfile::read_secret(&path, "the identity").map_err(|failure| match &failure.why {
            Some(why) if why.starts_with("no such file") => {
                failure.hint("make one with `verifica agent new NAME@DOMAIN --house URL`, or name it with --as")
            }
            _ => failure,
        })?;
        Identity::from_text(&text).map_err(|refusal| Failure::usage(refusal.reason).at(path.display()))
    }

    pub fn client(&self) -> Result<AgentClient, Failure> {
        let options = Options { extra_roots: extra_roots(&self.ca)?, ..Options::default() };
        Ok(AgentClient::new(self.load()?, options)?)
    }

    /// Keeps the key that the house was first seen with, so that another house at the same place is noticed; and the
    /// one that it announces, so that its change of keys is followed.
    pub fn keep_pin(&self, client: &AgentClient) -> Result<(), Failure> {
        let identity = client.identity();
        let Some(card) = client.known_house() else { return Ok(()) };
        let (key, next) = (Some(*card.signer()), card.announced().copied());
        if (identity.house_key, identity.next_house_key) == (key, next) {
            return Ok(());
        }
        let pinned = Identity { house_key: key, next_house_key: next, ..identity.clone() };
        keyfile::replace(&self.path(), pinned.to_text().as_bytes(), 0o600)
    }
}

pub fn identity_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("agent.json") } else { path.to_owned() }
}

/// The certificates of PEM files.
pub fn extra_roots(files: &[PathBuf]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let mut roots = Vec::new();
    for path in files {
        let pem = std::fs::read(path).map_err(|error| keyfile::cannot(&error, "the roots cannot be read", path))?;
        roots.extend(
            tls::certificates(&pem)
                .map_err(|why| Failure::usage("the roots cannot be used").at(path.display()).why(why))?,
        );
    }
    Ok(roots)
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        let said = error.to_string();
        match error {
            ClientError::Unreachable { url, why } => {
                Failure::new(Exit::Unreachable, "the house cannot be reached").at(url).why(why)
            }
            ClientError::BadAnswer { url, why } => {
                Failure::new(Exit::Unreachable, "the house gave an answer that cannot be used").at(url).why(why)
            }
            ClientError::Refused { status, reason, rule, retry_after, .. } => {
                let away = matches!(status, 408 | 421 | 500..=599);
                let mut failure = Failure::new(if away { Exit::Unreachable } else { Exit::Refused }, reason);
                failure.rule = rule;
                failure.code = Some(status);
                failure.why = Some(format!("the house answered {status}"));
                failure.hint = retry_after.map(|seconds| format!("try again in {seconds} s"));
                failure
            }
            ClientError::Local(refusal) => Failure::from(refusal),
            ClientError::Setup(why) => Failure::usage(why),
            ClientError::Bounced { id, reason, code, .. } => {
                let mut failure = Failure::new(Exit::Refused, reason).why(format!("the order {id} came back"));
                failure.code = code;
                let rule = code.and_then(|code| Rule::ALL.iter().find(|rule| rule.code() == code));
                failure.hint = rule.filter(|rule| rule.transient()).map(|_| "the same order may succeed later".into());
                failure
            }
            ClientError::Unacknowledged { error, .. } => Failure::from(*error),
            ClientError::NoReceipt { id, .. } => Failure::new(Exit::Unreachable, said).hint(format!(
                "the order is on its way; look with `verifica agent outbox` and `verifica agent inbox`, id {id}"
            )),
        }
    }
}
