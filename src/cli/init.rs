//! `verifica init`: a house from nothing. Writes a commented configuration, the domain key, the admin token and the
//! folder of the store; replaces nothing.

use super::keyfile;
use super::output::{Failure, Out, Style};
use super::{block_on, serve, settings};
use crate::config;
use crate::refusal::Exit;
use crate::store::Store;
use crate::wire::address::Domain;
use crate::wire::digest::base64url;
use crate::wire::key::SigningKey;
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  verifica init --domain mar.example --dir /srv/mar --public-url https://mail.mar.example"
)]
pub struct Args {
    /// The domain of the house
    #[arg(long, value_name = "DOMAIN")]
    domain: String,
    /// Where to put it; made if absent
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// What the cards will say [default: https://DOMAIN]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Where the house will listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4040")]
    listen: SocketAddr,
    /// Show what would be made, and make nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &Args, out: &Out) -> Result<Exit, Failure> {
    let domain = Domain::parse(&args.domain).map_err(|refusal| Failure::usage(refusal.reason).at("--domain"))?;
    let url = match &args.public_url {
        Some(url) => config::house_url(url).map_err(|why| Failure::usage(why).at("--public-url"))?,
        None => format!("https://{domain}"),
    };
    let place = |name: &str| args.dir.join(name);
    let files = [
        (place("verifica.toml"), 0o644, "the configuration, every key with its default"),
        (place("domain.key"), 0o600, "the private key of the house"),
        (place("admin.token"), 0o600, "the operator's token"),
    ];
    let data = place("data");
    for path in files.iter().map(|(path, ..)| path).chain([&data]) {
        if path.symlink_metadata().is_ok() {
            return Err(Failure::usage("a house, or a part of one, is here already; nothing was changed")
                .at(path.display())
                .hint("choose another --dir, or move the old files away"));
        }
    }
    let key = SigningKey::from_seed(keyfile::random::<32>()?);
    let kid = key.public().kid();
    if !args.dry_run {
        settings::make_folder(&args.dir, 0o755)?;
        settings::make_folder(&data, 0o700)?;
        let text = config::template(&domain, &url, &args.listen);
        // The configuration comes last: what it names exists when it does.
        keyfile::write_new(&files[1].0, format!("{}\n", key.secret_text().as_str()).as_bytes(), files[1].1)?;
        keyfile::write_new(&files[2].0, format!("{}\n", base64url(keyfile::random::<32>()?)).as_bytes(), files[2].1)?;
        make_store(&data)?;
        keyfile::write_new(&files[0].0, text.as_bytes(), files[0].1)?;
    }
    let made: Vec<String> =
        files.iter().map(|(path, ..)| path.display().to_string()).chain([data.display().to_string()]).collect();
    if out.json {
        let key = if args.dry_run { None } else { Some(&kid) };
        out.doc(&json!({
            "schema": "verifica.init/1", "domain": domain, "public_url": url, "domain_key": key, "files": made,
            "dry_run": args.dry_run,
        }));
        return Ok(Exit::Ok);
    }
    for (path, mode, what) in &files {
        out.line(format!(
            "{} {:04o}  {}  {}",
            out.paint(Style::Good, "+ create"),
            mode,
            path.display(),
            out.paint(Style::Faint, what)
        ));
    }
    out.line(format!(
        "{} 0700  {}  {}",
        out.paint(Style::Good, "+ create"),
        data.display(),
        out.paint(Style::Faint, "the store")
    ));
    if args.dry_run {
        out.say("nothing was made; run again without --dry-run");
        return Ok(Exit::Ok);
    }
    out.line(format!("domain key  {kid}"));
    let config = shell(&place("verifica.toml"));
    let near = format!("http://{}", args.listen);
    out.say(format!(
        "\nnext:\n  verifica serve --config {config}\n  verifica agent new NAME@{domain} --house {near} --as NAME.json\n  \
         verifica agent join --as NAME.json --admin-token-file {}\nother houses find this one by the TXT record\n  \
         _nyx5.{domain}  \"v=nyx51; url={url}; sig={kid}\"",
        shell(&files[2].0)
    ));
    Ok(Exit::Ok)
}

/// The empty store, so that the first start finds its folder to be usable.
fn make_store(data: &Path) -> Result<(), Failure> {
    let file = serve::store_file(data);
    let opened = Store::open(&file, 1).map_err(|error| serve::store_failure(&file, &error))?;
    block_on(async { opened.close().await.map_err(|error| serve::store_failure(&file, &error)) })
}

/// A path as a shell reads it.
fn shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+".contains(&b));
    if plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
