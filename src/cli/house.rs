//! `verifica house`: what only the operator decides. Who enters, which keys other houses are known by, and the house's
//! own change of key.

use super::agent::table;
use super::block_on;
use super::keyfile;
use super::output::{Failure, Out, brief, clean};
use super::settings;
use super::who::extra_roots;
use crate::client::agent::HouseClient;
use crate::client::agent::operator::Operator;
use crate::config::house_url;
use crate::limits;
use crate::refusal::Exit;
use crate::time::Timestamp;
use crate::wire::address::{Address, Domain};
use crate::wire::key::{PublicKey, SigningKey};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List the keys that other houses are known by, or one beside the key that its house presents now (network)
    Pins(Pins),
    /// Know a house by another key from now on, after asking it by another way (network)
    Confirm(Confirm),
    /// Issue an invitation code (network)
    Invite(Invite),
    /// List invitations and their use (network)
    Invitations(Invitations),
    /// End a subagent of this house (network)
    Revoke(Revoke),
    /// Change the house's own key: both keys stand on its card until the change is finished
    RotateKey(RotateKey),
}

/// Which house, by whose authority.
#[derive(Debug, clap::Args)]
struct Ask {
    /// The URL of the house [default: the one of the configuration]
    #[arg(long, value_name = "URL", env = "VERIFICA_HOUSE", hide_env_values = true)]
    house: Option<String>,
    /// The operator's token [default: the one of the configuration]
    #[arg(long, value_name = "FILE", env = "VERIFICA_ADMIN_TOKEN_FILE", hide_env_values = true)]
    admin_token_file: Option<PathBuf>,
    /// Trust these roots too; again for more
    #[arg(long, value_name = "FILE")]
    ca: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Pins {
    #[command(flatten)]
    ask: Ask,
    /// One house
    domain: Option<Domain>,
}

#[derive(Debug, clap::Args)]
pub struct Confirm {
    #[command(flatten)]
    ask: Ask,
    /// The house whose key it is
    domain: Domain,
    /// The key, as its operator told you
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    key: PublicKey,
}

#[derive(Debug, clap::Args)]
pub struct Invite {
    #[command(flatten)]
    ask: Ask,
    /// How many agents it lets in
    #[arg(long, value_name = "N", default_value_t = 1)]
    uses: u64,
    /// Until when
    #[arg(long, value_name = "TIME", value_parser = super::agent::instant)]
    expires: Option<Timestamp>,
    /// For yourself
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Tokens for each agent that enters by it [default: as the house gives]
    #[arg(long, value_name = "TOKENS")]
    welcome: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub struct Invitations {
    #[command(flatten)]
    ask: Ask,
}

#[derive(Debug, clap::Args)]
pub struct Revoke {
    #[command(flatten)]
    ask: Ask,
    /// The address to end
    sub: Address,
}

#[derive(Debug, clap::Args)]
pub struct RotateKey {
    /// Drop the old key: the new one alone signs the card from the next start
    #[arg(long)]
    finish: bool,
    /// The old key is in other hands: replace it without its word; every house that pinned it must confirm the new one
    #[arg(long, conflicts_with = "finish")]
    compromised: bool,
    /// Finish although others may not have seen the change yet
    #[arg(long, requires = "finish")]
    now: bool,
}

pub fn run(command: &Command, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    match command {
        Command::Pins(args) => pins(args, config, out),
        Command::Confirm(args) => confirm(args, config, out),
        Command::Invite(args) => invite(args, config, out),
        Command::Invitations(args) => invitations(args, config, out),
        Command::Revoke(args) => revoke(args, config, out),
        Command::RotateKey(args) => rotate_key(args, config, out),
    }
}

impl Ask {
    fn operator(&self, config: Option<&Path>, out: &Out) -> Result<Operator, Failure> {
        let known = settings::load_if_present(config, out)?;
        let url = match (&self.house, &known) {
            (Some(url), _) => house_url(url).map_err(|why| Failure::usage(why).at("--house"))?,
            (None, Some(config)) if config.tls.is_none() => format!("http://{}", config.listen),
            (None, Some(config)) => config.public_url.clone(),
            (None, None) => {
                let failure = Failure::usage("which house is not known");
                return Err(failure.hint("give --house URL, or --config FILE"));
            }
        };
        let file = self.admin_token_file.clone().or_else(|| known.map(|config| config.admin_token_file));
        let file = file.ok_or_else(|| {
            Failure::usage("the operator's token is not known").hint("give --admin-token-file FILE, or --config FILE")
        })?;
        let token = settings::admin_token(&file)?;
        Ok(Operator::new(HouseClient::new(&url, &extra_roots(&self.ca)?)?, &token)?)
    }
}

fn pins(args: &Pins, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    let operator = args.ask.operator(config, out)?;
    let text = |value: &Value, path: &str| brief(value.pointer(path).and_then(Value::as_str).unwrap_or("-"), 80);
    if let Some(domain) = &args.domain {
        let shown = block_on(async { Ok(operator.pin(domain).await?) })?;
        if out.json {
            out.doc(&shown);
        } else {
            out.line(format!("pinned     {}", text(&shown, "/pinned/key")));
            out.line(format!("announced  {}", text(&shown, "/pinned/next")));
            out.line(format!("presented  {}", text(&shown, "/presented")));
            if let Some(fault) = shown.get("fault").and_then(Value::as_str) {
                out.say(clean(fault));
            }
        }
        return Ok(Exit::Ok);
    }
    let known = block_on(async {
        let (mut all, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = operator.pins(after.as_deref()).await?;
            let listed = page.get("pins").and_then(Value::as_array).cloned().unwrap_or_default();
            after = page.get("after").and_then(Value::as_str).map(str::to_owned);
            if listed.is_empty() || after.is_none() {
                return Ok(all);
            }
            all.extend(listed);
        }
    })?;
    if out.json {
        out.doc(&json!({"schema": "verifica.pins/1", "pins": known}));
        return Ok(Exit::Ok);
    }
    let rows = known.iter().map(|pin| ["/domain", "/key", "/at", "/next"].map(|path| text(pin, path)).to_vec());
    table(out, &["domain", "key", "since", "announced"], rows.collect());
    Ok(Exit::Ok)
}

fn confirm(args: &Confirm, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    let operator = args.ask.operator(config, out)?;
    let answer = block_on(async { Ok(operator.confirm_pin(&args.domain, &args.key).await?) })?;
    if out.json {
        out.doc(&answer);
    } else {
        out.line(format!("{} is known by {}", args.domain, args.key));
    }
    Ok(Exit::Ok)
}

fn invite(args: &Invite, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    let operator = args.ask.operator(config, out)?;
    let asked = json!({"uses": args.uses, "expires": args.expires, "note": args.note, "welcome": args.welcome});
    let made = block_on(async { Ok(operator.invite(&asked).await?) })?;
    if out.json {
        out.doc(&made);
    } else {
        out.line(clean(made.get("code").and_then(Value::as_str).unwrap_or("-")));
        out.say(format!("it lets in {}", args.uses));
    }
    Ok(Exit::Ok)
}

fn invitations(args: &Invitations, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    let operator = args.ask.operator(config, out)?;
    let known = block_on(async { Ok(operator.invitations().await?) })?;
    if out.json {
        out.doc(&known);
        return Ok(Exit::Ok);
    }
    let listed = known.get("invitations").and_then(Value::as_array).cloned().unwrap_or_default();
    let rows = listed.iter().map(|invitation| {
        let text = |name: &str| brief(invitation.get(name).and_then(Value::as_str).unwrap_or("-"), 60);
        let count = |name: &str| invitation.get(name).and_then(Value::as_u64).unwrap_or_default();
        vec![text("code"), format!("{}/{}", count("used"), count("uses")), text("expires"), text("note")]
    });
    table(out, &["code", "used", "expires", "note"], rows.collect());
    Ok(Exit::Ok)
}

fn revoke(args: &Revoke, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    let operator = args.ask.operator(config, out)?;
    let answer = block_on(async { Ok(operator.revoke(&args.sub).await?) })?;
    if out.json {
        out.doc(&answer);
    } else {
        out.line(format!("{} is revoked", args.sub));
    }
    Ok(Exit::Ok)
}

/// Only files change here; the house takes the change up at its next start. The old key is beside the new one before
/// the new one takes its place, so that a stop in between loses neither.
fn rotate_key(args: &RotateKey, config: Option<&Path>, out: &Out) -> Result<Exit, Failure> {
    let config = settings::load(config, out)?;
    let (path, old_path) = (config.domain_key_file.clone(), settings::retiring_file(&config));
    let key = settings::domain_key(&config)?;
    let under_way = settings::retiring_key(&config)?;
    let done = |state: &str, key: &PublicKey, old: Option<&PublicKey>| {
        if out.json {
            let old = old.map(PublicKey::kid);
            out.doc(&json!({"schema": "verifica.rotate_key/1", "state": state, "key": key.kid(), "old": old}));
        } else {
            out.line(format!("{state}  {key}"));
            out.say("start the house again: it takes up its keys then");
        }
        Ok(Exit::Ok)
    };
    if args.finish {
        if under_way.is_none() {
            return Err(Failure::usage("no change of keys is under way").at(old_path.display()));
        }
        let age = std::fs::metadata(&old_path).and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        let grace = Duration::from_millis(limits::KEY_GRACE_MS.unsigned_abs());
        if !args.now && age.is_none_or(|age| age < grace) {
            let failure =
                Failure::new(Exit::Refused, "houses that have not written for a week may not know the new key");
            return Err(failure.hint("finish a week after the change began, or give --now"));
        }
        std::fs::remove_file(&old_path)
            .map_err(|error| keyfile::cannot(&error, "the old key cannot be removed", &old_path))?;
        return done("finished", &key.public(), None);
    }
    if under_way.is_some() && !args.compromised {
        let failure = Failure::new(Exit::Refused, "a change of keys is under way").at(old_path.display());
        return Err(failure.hint("finish it with --finish first"));
    }
    if args.compromised {
        let _ = std::fs::remove_file(&old_path);
    } else if !old_path.exists() {
        keyfile::write_new(&old_path, key.secret_text().as_bytes(), 0o600)?;
    }
    let fresh = SigningKey::from_seed(keyfile::random::<32>()?);
    keyfile::replace(&path, format!("{}\n", fresh.secret_text().as_str()).as_bytes(), 0o600)?;
    let old = Some(key.public()).filter(|_| !args.compromised);
    done(if args.compromised { "replaced" } else { "begun" }, &fresh.public(), old.as_ref())
}

fn public_key(text: &str) -> Result<PublicKey, String> {
    PublicKey::parse(text).map_err(|refusal| refusal.reason)
}
