//! The configuration of a house: `verifica.toml` and the environment, as typed values.
//!
//! [`parse`] is a function of a text, an environment and a folder; it reads no file. All faults are reported at once,
//! each with its place. Every key can be set as `VERIFICA_` + path with `__` between its parts; the environment wins.
//! Secrets are named by file only. Deliberately absent: opening what the configuration names.

mod reader;

pub use reader::{At, Diagnostic, Level, nearest, parse_duration, position, show_duration};

use crate::limits;
use crate::observe::Override;
use crate::probe::address::{AddressRule, Network};
use crate::probe::plan::Capabilities;
use crate::probe::url::{Target, UrlPolicy};
use crate::record::house::OnUndecided;
use crate::record::{House, Registration, Settings};
use crate::sandbox::JobPolicy;
use crate::verdict::ProbePolicy;
use crate::wire::address::Domain;
use crate::wire::auth::host_of;
use crate::wire::key::{PublicKey, SigningKey};
use reader::{Faults, Section, Val, boolean, duration, integer, list, one_of, parsed, text};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// What an operator configured. Paths are absolute or relative to the folder of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub domain: Domain,
    /// What the cards say; without a trailing slash.
    pub public_url: String,
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    pub domain_key_file: PathBuf,
    pub admin_token_file: PathBuf,
    /// Who may say, beside a proxy on this host, for whom it asks.
    pub trusted_proxies: Vec<Network>,
    pub tls: Option<Tls>,
    pub registration: RegistrationSection,
    pub mail: MailSection,
    pub libro: LibroSection,
    pub index: IndexSection,
    pub arbiter: ArbiterSection,
    pub probe: ProbeSection,
    pub attachments: AttachmentsSection,
    pub hosts: BTreeMap<Domain, HostOverride>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationSection {
    pub mode: Registration,
    pub per_minute: u32,
    pub min_name_length: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailSection {
    pub rate_per_minute: u32,
    pub max_bytes: usize,
    pub retry_base_ms: i64,
    pub retry_max_ms: i64,
    pub give_up_ms: i64,
    pub require_relay: bool,
    /// Agents write to other houses sealed, or not at all.
    pub outbound_sealed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSection {
    pub enabled: bool,
    pub every_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibroSection {
    pub fee_bps: u64,
    pub welcome: u64,
    pub reclaim_grace_ms: i64,
    pub review_window_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArbiterSection {
    pub enabled: bool,
    /// verifica@ judges, and `verifica watch` makes its looks: this house makes none.
    pub elsewhere: bool,
    /// The name of a policy of this program, or the path of a file with one.
    pub policy: String,
    /// What the file says, once somebody has read it.
    pub policy_file: Option<ProbePolicy>,
    pub tick_ms: i64,
    pub probe_slots: usize,
    /// The name of a policy for jobs, or the path of a file with one.
    pub job_policy: String,
    pub job_policy_file: Option<JobPolicy>,
    /// Looks with jobs that are under way at once.
    pub job_slots: usize,
    /// The policy's own where the configuration sets none; so are the two of `[probe]`.
    pub confirm_after_ms: Option<i64>,
    pub on_undecided_at_expiry: OnUndecided,
    /// Answers 200 whenever the network of this house works; asked beside looks that did not decide.
    pub control_url: Option<String>,
    pub evidence_keep_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSection {
    pub timeout_ms: Option<i64>,
    pub per_host_per_minute: Option<u32>,
    pub allow_networks: Vec<Network>,
    pub extra_ca: Vec<PathBuf>,
    pub resolve: Vec<Override>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentsSection {
    pub kind: AttachmentsKind,
    /// Bytes of all attachments together.
    pub quota_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachmentsKind {
    /// This house holds none.
    None,
    /// In the data folder.
    Local,
    S3(BucketSection),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSection {
    pub bucket: String,
    pub region: String,
    pub endpoint: Option<String>,
    /// Two lines: the access key and its secret.
    pub credentials_file: PathBuf,
}

impl AttachmentsSection {
    fn holds(&self) -> Option<u64> {
        (self.kind != AttachmentsKind::None).then_some(self.quota_bytes)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOverride {
    pub url: String,
    pub sig: Option<PublicKey>,
}

/// Reads a configuration; `base` is the folder of the file. The second list holds warnings.
pub fn parse(
    text: &str,
    env: &BTreeMap<String, String>,
    base: &Path,
) -> Result<(Config, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (entries, found) = reader::tree(text, env, &TOP_KEYS);
    let faults: Faults = Rc::new(RefCell::new(found));
    let mut top = Section::new(String::new(), At::Whole, entries, &faults);
    let config = read(&mut top, base);
    top.finish();
    let mut faults = faults.take();
    faults.sort_by_key(|fault| match &fault.at {
        At::Whole => (0, 0),
        At::Span(span) => (1, span.start),
        At::Env(_) => (2, 0),
    });
    match config {
        Some(config) if !faults.iter().any(|fault| fault.level == Level::Error) => Ok((config, faults)),
        _ => Err(faults),
    }
}

impl Config {
    /// Host and port of the public URL as credentials name it: the port only when it is not the scheme's own.
    pub fn host(&self) -> String {
        host_of(&self.public_url).unwrap_or_default()
    }

    /// The rule for literal and resolved addresses of tests.
    pub fn addresses(&self) -> AddressRule {
        AddressRule { allow: self.probe.allow_networks.clone(), allow_private: false }
    }

    /// The probe policy in force: the named one, or the one of the file, with the values set here.
    pub fn policy(&self) -> ProbePolicy {
        let named = self.arbiter.policy_file.clone().or_else(|| ProbePolicy::named(&self.arbiter.policy));
        let named = named.unwrap_or_default();
        ProbePolicy {
            confirm_after_ms: self.arbiter.confirm_after_ms.map_or(named.confirm_after_ms, i64::unsigned_abs),
            timeout_ms: self.probe.timeout_ms.map_or(named.timeout_ms, i64::unsigned_abs),
            per_host_per_minute: self.probe.per_host_per_minute.unwrap_or(named.per_host_per_minute),
            name: named.name,
        }
    }

    /// What jobs run under: the named policy, or the one of the file.
    pub fn job_policy(&self) -> Option<JobPolicy> {
        self.arbiter.job_policy_file.clone().or_else(|| JobPolicy::named(&self.arbiter.job_policy))
    }

    pub fn settings(&self, capabilities: Capabilities) -> Settings {
        Settings {
            registration: self.registration.mode,
            registrations_per_minute: self.registration.per_minute,
            min_name_length: self.registration.min_name_length,
            mail_per_minute: self.mail.rate_per_minute,
            max_bytes: self.mail.max_bytes,
            retry_base_ms: self.mail.retry_base_ms,
            retry_max_ms: self.mail.retry_max_ms,
            give_up_ms: self.mail.give_up_ms,
            require_relay: self.mail.require_relay,
            index: self.index.enabled,
            index_every_ms: self.index.every_ms,
            outbound_sealed: self.mail.outbound_sealed,
            fee_bps: self.libro.fee_bps,
            welcome: self.libro.welcome,
            reclaim_grace_ms: self.libro.reclaim_grace_ms,
            review_window_ms: self.libro.review_window_ms,
            arbiter: self.arbiter.enabled,
            on_undecided_at_expiry: self.arbiter.on_undecided_at_expiry,
            evidence_keep_ms: self.arbiter.evidence_keep_ms,
            attachments: self.attachments.holds(),
            policy: self.policy(),
            capabilities,
            addresses: self.addresses(),
        }
    }

    pub fn house(&self, key: SigningKey, capabilities: Capabilities) -> House {
        House {
            domain: self.domain.clone(),
            public_url: self.public_url.clone(),
            host: self.host(),
            key,
            retiring: None,
            settings: self.settings(capabilities),
        }
    }
}

/// The base URL of a house: http or https, a host, perhaps a port, nothing else. Without the trailing slash.
pub fn house_url(text: &str) -> Result<String, String> {
    let url = url::Url::parse(text).map_err(|e| format!("{text:?} is not a URL: {e}"))?;
    let plain =
        url.username().is_empty() && url.password().is_none() && url.query().is_none() && url.fragment().is_none();
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() || url.path() != "/" || !plain {
        return Err(format!(
            "{text:?} must be http:// or https:// with a host and perhaps a port, and nothing after it"
        ));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// The file that `verifica init` writes: every key with its default, in the order an operator needs them.
pub fn template(domain: &Domain, public_url: &str, listen: &SocketAddr) -> String {
    format!(
        r#"# verifica.toml: one house. Every key can also be set in the environment: VERIFICA_ + path, with __ between parts,
# such as VERIFICA_LIBRO__FEE_BPS=500. Relative paths are relative to this file. Durations: an integer with ms s m h d.

domain = "{domain}"
public_url = "{public_url}"   # what the cards say; its host is what credentials are bound to
listen = "{listen}"                 # plain HTTP on loopback for a reverse proxy, or HTTPS with [tls]
# trusted_proxies = ["10.0.0.7/32"]       # whose X-Forwarded-For is believed, beside this host's own
data_dir = "data"
domain_key_file = "domain.key"            # mode 0600; whoever holds it is this house
admin_token_file = "admin.token"          # mode 0600; whoever holds it can issue tokens

# [tls]
# cert = "cert.pem"
# key = "key.pem"

[registration]
mode = "admin"                            # admin | invite | open
per_minute = 10                           # per client address
min_name_length = 4

[mail]
rate_per_minute = 120                     # per sender; per domain for foreign senders
max_bytes = 1048576                       # of one envelope
retry_base = "1s"
retry_max = "60s"
give_up = "3d"
require_relay = false                     # refuse envelopes that no house vouches for
outbound = "any"                          # any | sealed: agents write to other houses sealed, or not at all

[libro]
fee_bps = 1000                            # basis points of each settled price that the house keeps
welcome = 0                               # tokens for a new agent
reclaim_grace = "24h"                     # after a deadline passed without delivery
review_window = "72h"                     # after a delivery; then silence pays

[index]
enabled = false                           # true: anybody may list a house here, and search what the listed ones show
every = "15m"                             # between two readings of a house

[arbiter]
enabled = true                            # false: this house takes no contracts with tests
elsewhere = false                         # true: `verifica watch` makes the looks, and this house none
policy = "default"                        # a name, or a path
tick = "1s"
probe_slots = 64
job_policy = "default"                    # what jobs of exit_0 tests may do: default, strict, toolchain, or a path
job_slots = 2                             # contracts whose jobs run at once
# confirm_after = "2s"                    # between the two looks that must agree; the policy's own unless set
on_undecided_at_expiry = "hold"           # hold | expire | refund: only where the seller's host never answered in the
                                          # whole review window, while the page of control_url did
# control_url = "https://…"               # answers 200 whenever the network of this house works
evidence_keep = "180d"                    # what verdicts stand on, after their contracts ended

[probe]
# timeout = "10s"                         # both are the policy's own unless set
# per_host_per_minute = 60
allow_networks = []                       # networks outside the public internet that probes may reach, as CIDR
extra_ca = []                             # PEM files trusted beside the compiled-in roots
resolve = {{}}                              # "seller.example:443" = "127.0.0.1:8443"

[attachments]
kind = "local"                            # local: in data_dir | s3 | none: this house holds no attachments
quota_bytes = 10737418240                 # of all senders together
# bucket = "attachments"                  # with kind = "s3": any store that speaks its protocol
# region = "us-east-1"
# endpoint = "https://s3.example"
# credentials_file = "s3.credentials"     # mode 0600; two lines: the access key and its secret

# [hosts."beta.example"]                  # where another house is, and perhaps its key
# url = "https://mail.beta.example"
# sig = "<domain key>"

[store]
kind = "sqlite"
"#
    )
}

fn read(top: &mut Section, base: &Path) -> Option<Config> {
    let path = |value: &Val| {
        text(value)
            .and_then(|shown| if shown.is_empty() { Err("the path is empty".into()) } else { Ok(base.join(shown)) })
    };
    let of_domain = |value: &Val| Domain::parse(&text(value)?).map_err(|refusal| refusal.reason);
    let domain = top.maybe("domain", of_domain).map(|(domain, _)| domain);
    if domain.is_none() && !top_has_fault(top, "domain") {
        top.fault(Diagnostic::error(At::Whole, "domain is missing").hint("add domain = \"your.domain\" at the top"));
    }
    let listen = top.get("listen", SocketAddr::from(([127, 0, 0, 1], 4040)), |value| {
        let shown = text(value)?;
        shown.parse().map_err(|_| format!("{shown:?} is no address with a port; write 127.0.0.1:4040 or [::1]:4040"))
    });
    let public_url = top.maybe("public_url", |value| house_url(&text(value)?)).map(|(url, _)| url);
    let public_url = public_url.or_else(|| domain.as_ref().map(|domain| format!("https://{domain}")));
    let data_dir = top.get("data_dir", base.join("data"), path);
    let domain_key_file = top.get("domain_key_file", base.join("domain.key"), path);
    let admin_token_file = top.get("admin_token_file", base.join("admin.token"), path);
    let proxies = |value: &Val| {
        let networks = list(parsed::<Network>)(value)?;
        if networks.len() > limits::TRUSTED_PROXIES_MAX {
            return Err(format!("at most {} networks", limits::TRUSTED_PROXIES_MAX));
        }
        if let Some(vast) = networks.iter().find(|network| network.is_vast()) {
            return Err(format!(
                "{vast} is nearly everybody; anybody could say for whom it asks and escape every limit"
            ));
        }
        Ok(networks)
    };
    let trusted_proxies = top.get("trusted_proxies", Vec::new(), proxies);
    let tls = top.optional_section("tls").and_then(|section| read_tls(section, &path));
    if tls.is_none() && !listen.ip().is_loopback() {
        top.fault(Diagnostic {
            level: Level::Warning,
            message: format!("listening on {listen} without [tls]: credentials and mail travel in the clear"),
            at: At::Whole,
            hint: Some("listen on 127.0.0.1 behind a reverse proxy, or add [tls] with cert and key".into()),
        });
    }
    let registration = read_registration(top.section("registration"));
    let mail = read_mail(top.section("mail"));
    let libro = read_libro(top.section("libro"));
    let index = read_index(top.section("index"));
    let arbiter = read_arbiter(top.section("arbiter"), base);
    let probe = read_probe(top.section("probe"), &path);
    let attachments = read_attachments(top.section("attachments"), &path);
    let hosts = read_hosts(top);
    read_store(top.section("store"));
    read_later(top);
    Some(Config {
        domain: domain?,
        public_url: public_url?,
        listen,
        data_dir,
        domain_key_file,
        admin_token_file,
        trusted_proxies,
        tls,
        registration,
        mail,
        libro,
        index,
        arbiter,
        probe,
        attachments,
        hosts,
    })
}

fn read_tls(mut section: Section, path: &dyn Fn(&Val) -> Result<PathBuf, String>) -> Option<Tls> {
    if !section.has("cert") || !section.has("key") {
        section.fault_here("[tls] needs both cert and key", "name two PEM files");
    }
    let cert = section.maybe("cert", path);
    let key = section.maybe("key", path);
    section.finish();
    Some(Tls { cert: cert?.0, key: key?.0 })
}

fn read_registration(mut section: Section) -> RegistrationSection {
    let modes = [("admin", Registration::Admin), ("invite", Registration::Invite), ("open", Registration::Open)];
    let value = RegistrationSection {
        mode: section.get("mode", Registration::Admin, one_of(&modes)),
        per_minute: section.get("per_minute", limits::RATE_REGISTRATION_PER_MINUTE, count(1, 1_000_000)),
        min_name_length: section.get("min_name_length", limits::NAME_MIN_DEFAULT, size(1, limits::ADDRESS_LOCAL_MAX)),
    };
    section.finish();
    value
}

fn read_mail(mut section: Section) -> MailSection {
    let wait = duration(1, 86_400_000);
    let retry_base = section.maybe("retry_base", &wait);
    let retry_max = section.maybe("retry_max", &wait);
    let set_at = retry_max.as_ref().or(retry_base.as_ref()).map_or(At::Whole, |(_, at)| at.clone());
    let value = MailSection {
        rate_per_minute: section.get("rate_per_minute", limits::RATE_MAIL_PER_MINUTE, count(1, 1_000_000)),
        max_bytes: section.get("max_bytes", limits::ENVELOPE_BYTES_DEFAULT, size(1_024, limits::REQUEST_BODY_MAX)),
        retry_base_ms: retry_base.map_or(limits::RETRY_BASE_MS, |(ms, _)| ms),
        retry_max_ms: retry_max.map_or(limits::RETRY_MAX_MS, |(ms, _)| ms),
        give_up_ms: section.get("give_up", limits::GIVE_UP_MS, duration(1, 30 * 86_400_000)),
        require_relay: section.get("require_relay", false, boolean),
        outbound_sealed: section.get("outbound", false, one_of(&[("any", false), ("sealed", true)])),
    };
    if value.retry_max_ms < value.retry_base_ms {
        let (base, most) = (show_duration(value.retry_base_ms), show_duration(value.retry_max_ms));
        let fault = format!("mail.retry_max, {most}, is shorter than mail.retry_base, {base}");
        section.fault(Diagnostic::error(set_at, fault).hint("the wait doubles from the one to the other"));
    }
    section.finish();
    value
}

fn read_index(mut section: Section) -> IndexSection {
    let value = IndexSection {
        enabled: section.get("enabled", false, boolean),
        every_ms: section.get("every", limits::INDEX_EVERY_MS, duration(limits::INDEX_EVERY_MS_MIN, 7 * 86_400_000)),
    };
    section.finish();
    value
}

fn read_libro(mut section: Section) -> LibroSection {
    let window = duration(0, 365 * 86_400_000);
    let review = section.maybe("review_window", &window);
    if let Some((0, at)) = &review {
        section.fault(Diagnostic {
            level: Level::Warning,
            message: "libro.review_window is zero: silence pays at once, and no buyer has time to object".into(),
            at: at.clone(),
            hint: Some("leave it out for 72h".into()),
        });
    }
    let value = LibroSection {
        fee_bps: section.get("fee_bps", limits::FEE_BPS_DEFAULT, integer(0, limits::BPS_WHOLE)),
        welcome: section.get("welcome", 0, integer(0, limits::SAFE_INTEGER_MAX)),
        reclaim_grace_ms: section.get("reclaim_grace", limits::RECLAIM_GRACE_MS, &window),
        review_window_ms: review.map_or(limits::REVIEW_WINDOW_MS, |(window, _)| window),
    };
    section.finish();
    value
}

fn read_arbiter(mut section: Section, base: &Path) -> ArbiterSection {
    let undecided = [("hold", OnUndecided::Hold), ("expire", OnUndecided::Expire), ("refund", OnUndecided::Refund)];
    let asked = section.maybe("on_undecided_at_expiry", one_of(&undecided));
    let control = section.maybe("control_url", control_url);
    if let (Some((OnUndecided::Refund, at)), None) = (&asked, &control) {
        section.fault(Diagnostic {
            level: Level::Error,
            message: "arbiter.on_undecided_at_expiry = \"refund\" needs arbiter.control_url".into(),
            at: at.clone(),
            hint: Some("name a page outside this house that answers 200 whenever the network works".into()),
        });
    }
    let policy = |value: &Val| match text(value)? {
        path if path.contains('/') || path.ends_with(".toml") => Ok(base.join(path).display().to_string()),
        _ => one_of(&ProbePolicy::names().into_iter().map(|name| (name, name)).collect::<Vec<_>>())(value)
            .map(str::to_owned),
    };
    let job_policy = |value: &Val| match text(value)? {
        path if path.contains('/') || path.ends_with(".toml") => Ok(base.join(path).display().to_string()),
        _ => one_of(&JobPolicy::names().into_iter().map(|name| (name, name)).collect::<Vec<_>>())(value)
            .map(str::to_owned),
    };
    let value = ArbiterSection {
        enabled: section.get("enabled", true, boolean),
        elsewhere: section.get("elsewhere", false, boolean),
        policy: section.get("policy", "default".to_owned(), policy),
        policy_file: None,
        tick_ms: section.get("tick", 1_000, duration(10, 3_600_000)),
        probe_slots: section.get("probe_slots", limits::PROBE_SLOTS_DEFAULT, size(1, 4_096)),
        job_policy: section.get("job_policy", "default".to_owned(), job_policy),
        job_policy_file: None,
        job_slots: section.get("job_slots", limits::JOB_PLACES_DEFAULT, size(1, limits::JOB_PLACES_MAX)),
        confirm_after_ms: section.maybe("confirm_after", duration(1, 3_600_000)).map(|(value, _)| value),
        on_undecided_at_expiry: asked.map_or(OnUndecided::Hold, |(value, _)| value),
        control_url: control.map(|(url, _)| url),
        evidence_keep_ms: section.get(
            "evidence_keep",
            limits::EVIDENCE_KEEP_MS,
            duration(limits::EVIDENCE_KEEP_MS_MIN, limits::EVIDENCE_KEEP_MS_MAX),
        ),
    };
    section.finish();
    value
}

fn control_url(value: &Val) -> Result<String, String> {
    let url = text(value)?;
    let anywhere = UrlPolicy { addresses: AddressRule { allow_private: true, ..AddressRule::default() } };
    Target::parse(&url, &anywhere).map(|_| url)
}

fn read_probe(mut section: Section, path: &dyn Fn(&Val) -> Result<PathBuf, String>) -> ProbeSection {
    let resolve = section.each("resolve").into_iter().filter_map(|(name, at, node)| {
        let read = text(&node.value).and_then(|to| resolve_override(&name, &to));
        read.map_err(|why| section.fault(Diagnostic::error(at, format!("probe.resolve: {why}")))).ok()
    });
    let resolve = resolve.collect();
    let allowed = section.maybe("allow_networks", list(parsed::<Network>));
    if let Some((networks, at)) = &allowed
        && let Some(vast) = networks.iter().find(|network| network.is_vast())
    {
        section.fault(Diagnostic {
            level: Level::Warning,
            message: format!("probe.allow_networks: {vast} lets a contract's tests reach whatever this host reaches"),
            at: at.clone(),
            hint: Some("name the networks of the servers that are judged, and no more".into()),
        });
    }
    let value = ProbeSection {
        timeout_ms: section.maybe("timeout", duration(100, 600_000)).map(|(value, _)| value),
        per_host_per_minute: section.maybe("per_host_per_minute", count(1, 1_000_000)).map(|(value, _)| value),
        allow_networks: allowed.map(|(networks, _)| networks).unwrap_or_default(),
        extra_ca: section.get("extra_ca", Vec::new(), list(path)),
        resolve,
    };
    section.finish();
    value
}

fn read_attachments(mut section: Section, path: &dyn Fn(&Val) -> Result<PathBuf, String>) -> AttachmentsSection {
    let kind = section.get("kind", "local", one_of(&[("local", "local"), ("s3", "s3"), ("none", "none")]));
    let most = integer(1_048_576, limits::SAFE_INTEGER_MAX);
    let quota_bytes = section.get("quota_bytes", limits::ATTACHMENT_HOUSE_BYTES_DEFAULT, most);
    let bucket = section.maybe("bucket", text).map(|(bucket, _)| bucket);
    let region = section.get("region", "us-east-1".to_owned(), text);
    let endpoint = section.maybe("endpoint", |value| house_url(&text(value)?)).map(|(url, _)| url);
    let credentials = section.maybe("credentials_file", path).map(|(path, _)| path);
    let kind = match (kind, bucket, credentials) {
        ("s3", Some(bucket), Some(credentials_file)) => {
            AttachmentsKind::S3(BucketSection { bucket, region, endpoint, credentials_file })
        }
        ("s3", ..) => {
            section.fault_here(
                "attachments.kind = \"s3\" needs bucket and credentials_file",
                "credentials_file has two lines: the access key and its secret",
            );
            AttachmentsKind::None
        }
        ("none", ..) => AttachmentsKind::None,
        _ => AttachmentsKind::Local,
    };
    section.finish();
    AttachmentsSection { kind, quota_bytes }
}

/// `HOST:PORT` is reached at `ADDR` or `ADDR:PORT2`.
fn resolve_override(name: &str, to: &str) -> Result<Override, String> {
    let parts = name.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let (host, port) = parts
        .filter(|(host, port)| !host.is_empty() && *port != 0)
        .ok_or_else(|| format!("{name:?} must be HOST:PORT, such as \"seller.example:443\""))?;
    let bare = to.trim_start_matches('[').trim_end_matches(']');
    let to = to.parse::<SocketAddr>().or_else(|_| bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)));
    let to = to.map_err(|_| format!("{name} must map to an address or ADDRESS:PORT, such as \"127.0.0.1:8443\""))?;
    Override::new(host, port, to)
}

fn read_hosts(top: &mut Section) -> BTreeMap<Domain, HostOverride> {
    let mut hosts = BTreeMap::new();
    for (name, at, node) in top.each("hosts") {
        let domain = match Domain::parse(&name) {
            Ok(domain) => domain,
            Err(refusal) => {
                top.fault(Diagnostic::error(at, format!("hosts: {}", refusal.reason)));
                continue;
            }
        };
        let entries = match reader::table(&node.value) {
            Ok(entries) => entries,
            Err(why) => {
                top.fault(Diagnostic::error(node.at, format!("hosts.\"{name}\": {why}")));
                continue;
            }
        };
        let mut section = top.child(format!("hosts.\"{name}\""), at, entries);
        if !section.has("url") {
            section.fault_here(
                format!("hosts.\"{name}\" needs a url"),
                "say where the house is, such as url = \"https://mail.beta.example\"",
            );
        }
        let sig =
            section.maybe("sig", |value| PublicKey::parse(&text(value)?).map_err(|r| r.reason)).map(|(key, _)| key);
        if let Some((url, _)) = section.maybe("url", |value| house_url(&text(value)?)) {
            hosts.insert(domain, HostOverride { url, sig });
        }
        section.finish();
    }
    hosts
}

fn read_store(mut section: Section) {
    section.get("kind", (), one_of(&[("sqlite", ())]));
    section.finish();
}

/// Sections of the design that this version does not serve: known, so that the message is the right one.
fn read_later(top: &mut Section) {
    for (name, what) in [("tareas", "seeded work"), ("metrics", "the metrics listener")] {
        for (key, at, _) in top.each(name) {
            top.fault(
                Diagnostic::error(at, format!("{name}.{key}: {what} is not offered by this version"))
                    .hint(format!("remove [{name}]")),
            );
        }
    }
}

fn top_has_fault(top: &Section, key: &str) -> bool {
    let start = format!("{key}: ");
    top.faults_any(|fault| fault.message.starts_with(&start))
}

fn count(min: u64, max: u32) -> impl Fn(&Val) -> Result<u32, String> {
    let read = integer(min, u64::from(max));
    move |value| read(value).map(|n| u32::try_from(n).unwrap_or(max))
}

fn size(min: u64, max: usize) -> impl Fn(&Val) -> Result<usize, String> {
    let read = integer(min, max as u64);
    move |value| read(value).map(|n| usize::try_from(n).unwrap_or(max))
}

const TOP_KEYS: [&str; 19] = [
    "attachments",
    "trusted_proxies",
    "domain",
    "public_url",
    "listen",
    "data_dir",
    "domain_key_file",
    "admin_token_file",
    "tls",
    "registration",
    "mail",
    "libro",
    "index",
    "arbiter",
    "probe",
    "hosts",
    "store",
    "tareas",
    "metrics",
];

#[cfg(test)]
mod tests;
