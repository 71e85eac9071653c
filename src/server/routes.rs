//! The doors as data: one row a route. The router is built from [`TABLE`], and a test can walk it.
//!
//! What happens to a request, in order: route and method (a wrong method is an unknown route), who is asking, the bucket
//! of its address, the body within the row's bound, the door. Nothing is looked up for whoever is not let in, so a 401
//! says the same about what exists and what does not.

use super::doors::{Asking, Caller, Doors};
use super::http::{Held, HeldBody, Keep, Reply, read_body, respond};
use super::transfers::Transfers;
use super::{blobs, house, index, mail, money, people, pins, talk};
use crate::limits;
use crate::mail::Answer;
use crate::objects::Objects;
use crate::probe::address::Network;
use crate::refusal::{Refusal, Rule};
use crate::wire::auth::Request as Bound;
use crate::wire::json;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, TRANSFER_ENCODING};
use axum::http::{HeaderValue, Method, StatusCode, Version};
use axum::response::Response;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower_http::catch_panic::CatchPanicLayer;

/// Who may use a route, and what its door is told about the one who does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Anybody.
    None,
    /// The operator's token.
    House,
    /// An agent of this house.
    Agent,
    /// The agent of this house that the path names.
    Owner,
    /// An agent of any house.
    AnyAgent,
    /// The operator or an agent of this house.
    HouseOrAgent,
    /// Anybody; whoever proves to be somebody may see more.
    Asker,
    /// Anybody; the operator and agents of this house are known as such, and a credential that does not hold is 401.
    Open,
}

/// One door.
pub struct Route {
    pub method: &'static str,
    /// Segments in braces are parameters.
    pub path: &'static str,
    pub auth: Auth,
    /// The largest body in bytes; zero where the route takes none.
    pub body_max: usize,
    /// The door reads the body itself, piece by piece; otherwise it is JSON and read before.
    pub raw: bool,
    pub keep: Keep,
    /// Requests of one address in a minute are counted under this name.
    pub bucket: Option<&'static str>,
    door: Door,
}

type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send + 'a>>;
type Door = for<'a> fn(&'a App, Call) -> Answering<'a>;

/// Who was let in.
#[derive(Clone, Debug)]
pub enum Who {
    Nobody,
    House,
    Agent(Box<Caller>),
    Asking(Asking),
}

/// A request as its door sees it.
pub struct Call {
    pub who: Who,
    pub ip: IpAddr,
    pub headers: HeaderMap,
    pub query: Vec<(String, String)>,
    pub body: HeldBody,
    /// The body of a route that takes it raw, for its door to take once.
    pub raw: Mutex<Option<Body>>,
    params: Vec<(&'static str, String)>,
}

/// What all routes share.
pub struct App {
    pub doors: Arc<Doors>,
    pub stopping: tokio_util::sync::CancellationToken,
    pub transfers: Transfers,
    objects: Option<Arc<Objects>>,
    ready: AtomicBool,
    held: Arc<Held>,
}

/// Set by the listener on each request.
#[derive(Clone, Debug)]
pub struct Remote {
    pub ip: IpAddr,
    /// Plain HTTP from this host, or one of the operator's proxies: it may say for whom it speaks.
    pub behind_proxy: bool,
    /// The proxies that the operator named.
    pub proxies: Arc<[Network]>,
}

macro_rules! route {
    ($method:literal $path:literal, $auth:ident, body $body:expr, $keep:expr, $bucket:expr => $door:path) => {
        Route {
            method: $method,
            path: $path,
            auth: Auth::$auth,
            body_max: $body,
            raw: false,
            keep: $keep,
            bucket: $bucket,
            door: |app, call| Box::pin($door(app, call)),
        }
    };
}

const SMALL: usize = limits::SMALL_BODY_MAX;
const WHOLE: usize = limits::REQUEST_BODY_MAX;
const OBJECT: usize = limits::ATTACHMENT_BYTES_MAX as usize;
const MINUTE: Keep = Keep::Seconds(60);

/// Every route of the house.
pub const TABLE: &[Route] = &[
    route!("GET" "/.well-known/nyx5.json", None, body 0, Keep::Seconds(300), None => house::domain_card),
    route!("GET" "/health", None, body 0, Keep::No, None => house::health),
    route!("GET" "/live", None, body 0, Keep::No, None => house::live),
    route!("GET" "/ready", None, body 0, Keep::No, None => house::ready),
    route!("GET" "/agents", None, body 0, MINUTE, None => people::directory),
    route!("POST" "/agents", Open, body SMALL, Keep::No, None => people::register),
    route!("GET" "/agents/{local}", Asker, body 0, MINUTE, None => people::card),
    route!("POST" "/agents/{local}/profile", Agent, body SMALL, Keep::No, None => people::profile),
    route!("GET" "/delegations/{local}", Owner, body 0, Keep::No, None => people::delegations),
    route!("GET" "/pins", House, body 0, Keep::No, None => pins::listing),
    route!("GET" "/pins/{domain}", House, body 0, Keep::No, None => pins::shown),
    route!("POST" "/pins/{domain}", House, body SMALL, Keep::No, None => pins::confirm),
    route!("POST" "/agents/{local}/revoke", HouseOrAgent, body SMALL, Keep::No, None => people::revoke),
    route!("GET" "/agents/{local}/presence", Asker, body 0, Keep::No, Some("presence") => people::presence),
    route!("GET" "/resolve/{address}", Asker, body 0, Keep::No, Some("resolve") => people::resolve),
    route!("POST" "/invitations", House, body SMALL, Keep::No, None => people::invite),
    route!("GET" "/invitations", House, body 0, Keep::No, None => people::invitations),
    route!("POST" "/outbound", Agent, body WHOLE, Keep::No, None => mail::outbound),
    route!("POST" "/inbound", None, body WHOLE, Keep::No, None => mail::inbound),
    route!("GET" "/mailbox/{local}", Owner, body 0, Keep::No, None => mail::mailbox),
    route!("POST" "/mailbox/{local}/ack", Owner, body SMALL, Keep::No, None => mail::acknowledge),
    route!("GET" "/mailbox/{local}/wait", Owner, body 0, Keep::No, None => mail::wait),
    route!("GET" "/outbox/{local}", Owner, body 0, Keep::No, None => mail::outbox),
    route!("GET" "/conversations/{local}", Owner, body 0, Keep::No, None => talk::conversations),
    Route { raw: true, ..route!("PUT" "/blob/{blob}", Agent, body OBJECT, Keep::No, Some("blob") => blobs::upload) },
    route!("GET" "/blob/{blob}", AnyAgent, body 0, Keep::No, Some("blob") => blobs::download),
    route!("DELETE" "/blob/{blob}", Agent, body 0, Keep::No, Some("blob") => blobs::remove),
    route!("POST" "/groups", Agent, body SMALL, Keep::No, None => talk::create_group),
    route!("GET" "/groups/{local}/members", Agent, body 0, Keep::No, None => talk::group_members),
    route!("POST" "/groups/{local}/members", Agent, body SMALL, Keep::No, None => talk::edit_group),
    route!("POST" "/index/houses", None, body SMALL, Keep::No, Some("index") => index::register),
    route!("GET" "/index/houses", None, body 0, Keep::No, Some("index") => index::houses),
    route!("GET" "/index/agents", None, body 0, Keep::No, Some("index") => index::agents),
    route!("GET" "/eventos", House, body 0, Keep::No, None => house::events),
    route!("GET" "/libro/cuenta/{address}", AnyAgent, body 0, Keep::No, None => money::account),
    route!("GET" "/libro/contrato/{id}", AnyAgent, body 0, Keep::No, None => money::contract),
    route!("GET" "/libro/contrato/{id}/evidencia", AnyAgent, body 0, Keep::No, Some("evidence") => money::evidence),
    route!("GET" "/libro/estado", AnyAgent, body 0, Keep::No, None => money::statement),
    route!("GET" "/libro/diario", House, body 0, Keep::No, None => money::journal),
    route!("POST" "/libro/topup", House, body SMALL, Keep::No, None => money::topup),
];

/// The router over [`TABLE`].
pub fn router(app: Arc<App>) -> Router {
    let paths: BTreeSet<&'static str> = TABLE.iter().map(|route| route.path).collect();
    let mut router = Router::new();
    for path in paths {
        let app = app.clone();
        router = router.route(path, axum::routing::any(move |request| serve(app.clone(), path, request)));
    }
    router
        .fallback(|request: Request| async move { refused(&unknown_route(), request.method(), request.headers()) })
        .layer(CatchPanicLayer::custom(|panic: Box<dyn std::any::Any + Send>| panicked(&*panic)))
        .layer(axum::middleware::from_fn(async |request: Request, next: axum::middleware::Next| {
            match one_reading(request.version(), request.headers()) {
                Ok(()) => next.run(request).await,
                Err(refusal) => {
                    let mut response = refused(&refusal, request.method(), request.headers());
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    response
                }
            }
        }))
}

impl Call {
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value.as_str())
    }

    /// The first value of a query field; an empty one counts as absent.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
    }

    /// The JSON body; an absent one is an empty object.
    pub fn json(&self) -> Result<Value, Refusal> {
        if self.body.bytes.is_empty() { Ok(json!({})) } else { json::parse_object(&self.body.bytes) }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The agent that the table promises; a row that promises none and a door that needs one is a fault of ours.
    pub fn caller(&self) -> Result<&Caller, Refusal> {
        match &self.who {
            Who::Agent(caller) => Ok(caller),
            _ => Err(Refusal::new(Rule::Unauthenticated, "this route is for agents")),
        }
    }
}

async fn serve(app: Arc<App>, path: &'static str, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let asked_method = match head.method {
        Method::HEAD => "GET",
        ref other => other.as_str(),
    };
    let Some(route) = TABLE.iter().find(|route| route.path == path && route.method == asked_method) else {
        let refusal = if NAMES_ITS_METHODS.contains(&path) { wrong_method() } else { unknown_route() };
        return refused(&refusal, &head.method, &head.headers);
    };
    let remote = head.extensions.get::<Remote>().cloned();
    let ip = asking_ip(remote, &head.headers);
    let raw_path = head.uri.path();
    let params = parameters(route.path, raw_path);
    let bound = Bound { method: route.method, path: raw_path, host: &app.doors.house().host };
    let answer = async {
        let who = admit(&app.doors, route, &head.headers, bound, &params, ip).await?;
        if let Some(bucket) = route.bucket {
            app.doors.count_ip(bucket, ip, limits::RATE_LOOKUP_PER_MINUTE).await?;
        }
        let (body, raw) = match route.raw {
            true => (HeldBody::none(), Some(body)),
            false => (body_of(&app, route, &head.headers, body, &who).await?, None),
        };
        let query = url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
        let query = query.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        (route.door)(
            &app,
            Call { who, ip, headers: head.headers.clone(), query, body, raw: Mutex::new(raw), params: params.clone() },
        )
        .await
    };
    let reply = answer.await.unwrap_or_else(|refusal| {
        if refusal.code() >= 500 {
            tracing::warn!(event = "request_failed", route = route.path, rule = refusal.rule.number(), reason = %refusal.reason);
        }
        // A house that relays mail reads one shape of answer, whichever step refused.
        if route.path == "/inbound" { mail::answered(Answer::refused(&refusal)) } else { Reply::from(&refusal) }
    });
    respond(reply, &head.method, &head.headers, route.keep)
}

/// Who is asking, by the row's rule.
async fn admit(
    doors: &Doors,
    route: &Route,
    headers: &HeaderMap,
    bound: Bound<'_>,
    params: &[(&'static str, String)],
    ip: IpAddr,
) -> Result<Who, Refusal> {
    let authorization = headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap_or("unreadable"));
    let agent = async |foreign: bool| {
        let caller = doors.authenticate(authorization, bound, foreign).await?;
        Ok::<Who, Refusal>(Who::Agent(Box::new(caller)))
    };
    let bearer = authorization.is_some_and(|header| header.trim_start().starts_with("Bearer "));
    let house = || match doors.is_house(authorization) {
        true => Ok(Who::House),
        false => Err(Refusal::new(Rule::Unauthenticated, "this route needs the operator's token")),
    };
    match route.auth {
        Auth::None => Ok(Who::Nobody),
        Auth::House => house(),
        Auth::Agent => agent(false).await,
        Auth::AnyAgent => agent(true).await,
        Auth::HouseOrAgent if bearer => house(),
        Auth::HouseOrAgent => agent(false).await,
        Auth::Open if authorization.is_none() => Ok(Who::Nobody),
        Auth::Open if bearer => house(),
        Auth::Open => agent(false).await,
        Auth::Owner => {
            let caller = doors.authenticate(authorization, bound, false).await?;
            let local = params.iter().find(|(name, _)| *name == "local").map_or("", |(_, value)| value.as_str());
            if caller.owns(local) {
                return Ok(Who::Agent(Box::new(caller)));
            }
            doors.spend(&caller).await?;
            Err(Refusal::new(Rule::NotYours, format!("{} may only see its own", caller.card.address)))
        }
        Auth::Asker => {
            let on_behalf = headers.get("x-nyx5-for").and_then(|value| value.to_str().ok());
            if authorization.is_some() || on_behalf.is_some() {
                doors.count_ip("asker", ip, limits::RATE_LOOKUP_PER_MINUTE).await?;
            }
            Ok(Who::Asking(doors.asking(authorization, on_behalf, bound).await))
        }
    }
}

/// The body, for routes that take one. A token whose request came without a usable body is spent all the same.
async fn body_of(app: &App, route: &Route, headers: &HeaderMap, body: Body, who: &Who) -> Result<HeldBody, Refusal> {
    if route.body_max == 0 {
        return Ok(HeldBody::none());
    }
    let deadline = Duration::from_millis(limits::REQUEST_READ_MS);
    let read = read_body(headers, body, route.body_max, deadline, &app.held).await;
    if read.is_err()
        && let Who::Agent(caller) = who
    {
        app.doors.spend(caller).await?;
    }
    read
}

/// A request that a proxy in front of this house could read in another way than the house is not answered, and nothing
/// after it is read: one host, one coding of the body, one credential.
fn one_reading(version: Version, headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = |reason: &str| Err(Refusal::new(Rule::BadParameter, reason));
    let count = |name: HeaderName| headers.get_all(name).iter().count();
    if count(HOST) > 1 || (count(HOST) == 0 && version == Version::HTTP_11) {
        return refuse("a request names one host");
    }
    if count(AUTHORIZATION) > 1 {
        return refuse("a request has one authorization header");
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") && count(CONTENT_LENGTH) == 0 => {
            Ok(())
        }
        _ => refuse("transfer-encoding must be chunked and nothing else, without a content-length"),
    }
}

fn parameters(pattern: &'static str, raw_path: &str) -> Vec<(&'static str, String)> {
    let named = pattern.split('/').zip(raw_path.split('/'));
    named
        .filter_map(|(segment, raw)| {
            let name = segment.strip_prefix('{')?.strip_suffix('}')?;
            // What cannot be decoded stays as it came, and names nothing.
            let value = decode_segment(raw).unwrap_or_else(|| raw.to_owned());
            Some((name, if name == "id" { value } else { value.to_ascii_lowercase() }))
        })
        .collect()
}

/// The path segment as text, decoded once; `None` when it is not the encoding of a text.
fn decode_segment(raw: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).ok()
}

/// The address that limits are counted for. Each proxy appends whom it was asked by, so the list is read from its end:
/// the first that is not a proxy of the operator's is the one who asks. What a stranger wrote before it counts nothing.
fn asking_ip(remote: Option<Remote>, headers: &HeaderMap) -> IpAddr {
    let Some(remote) = remote else { return IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED) };
    if !remote.behind_proxy {
        return remote.ip;
    }
    let named = headers.get_all("x-forwarded-for").iter().filter_map(|value| value.to_str().ok());
    let hops: Vec<&str> = named.flat_map(|list| list.split(',')).map(str::trim).collect();
    let mut asking = remote.ip;
    for hop in hops.into_iter().rev().take(limits::PROXY_HOPS_MAX) {
        let Ok(ip) = hop.parse::<IpAddr>() else { break };
        asking = ip.to_canonical();
        if !remote.proxies.iter().any(|network| network.contains(asking)) {
            break;
        }
    }
    asking
}

/// Paths of which the protocol says that a wrong method is called wrong.
const NAMES_ITS_METHODS: &[&str] = &["/groups/{local}/members"];

fn wrong_method() -> Refusal {
    Refusal::new(Rule::WrongMethod, "this route takes GET and POST")
}

pub(super) fn unknown_route() -> Refusal {
    Refusal::new(Rule::UnknownRoute, "unknown route")
}

fn refused(refusal: &Refusal, method: &Method, headers: &HeaderMap) -> Response {
    respond(Reply::from(refusal), method, headers, Keep::No)
}

/// A bug of ours; the request that met it is answered, and the house goes on.
fn panicked(panic: &(dyn std::any::Any + Send)) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(event = "panic", text = text.unwrap_or("no text"));
    let body = json!({"reason": "a fault in this house; the operator's log has it"});
    respond(Reply::json(StatusCode::INTERNAL_SERVER_ERROR.as_u16(), body), &Method::GET, &HeaderMap::new(), Keep::No)
}

impl App {
    pub fn new(doors: Arc<Doors>, stopping: tokio_util::sync::CancellationToken) -> App {
        let transfers = Transfers::default();
        App { doors, stopping, transfers, objects: None, ready: AtomicBool::new(false), held: Held::new() }
    }

    /// Attachments lie there.
    pub fn holding(mut self, objects: Option<Arc<Objects>>) -> App {
        self.objects = objects;
        self
    }

    pub fn objects(&self) -> Result<Arc<Objects>, Refusal> {
        self.objects.clone().ok_or_else(|| Refusal::new(Rule::NoAttachments, "this house holds no attachments"))
    }

    pub fn started(&self) {
        self.ready.store(true, Ordering::Release);
    }

    pub fn is_started(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_decoded_once() {
        assert_eq!(decode_segment("ana%40mar.example").as_deref(), Some("ana@mar.example"));
        assert_eq!(decode_segment("..%2Fdomain").as_deref(), Some("../domain"));
        assert_eq!(decode_segment("%252F").as_deref(), Some("%2F"));
        for bad in ["%E0%A4%A", "%", "%4", "%zz", "%ff", "%+1"] {
            assert_eq!(decode_segment(bad), None, "{bad}");
        }
        let params = parameters("/agents/{local}/revoke", "/agents/Ana/revoke");
        assert_eq!(params, [("local", "ana".to_owned())]);
        assert_eq!(parameters("/libro/contrato/{id}", "/libro/contrato/%E0")[0].1, "%E0");
    }

    #[test]
    fn every_row_stands_once_and_bodies_are_bounded() {
        let mut seen = BTreeSet::new();
        for route in TABLE {
            assert!(seen.insert((route.method, route.path)), "{} {}", route.method, route.path);
            assert_eq!(matches!(route.method, "POST" | "PUT"), route.body_max > 0, "{}", route.path);
            assert!(route.path.starts_with('/') && !route.path.ends_with('/'));
            let private = !matches!(route.auth, Auth::None | Auth::Asker);
            assert!(!private || route.keep == Keep::No, "{}: an answer for one is kept by nobody", route.path);
        }
    }

    #[test]
    fn only_proxies_of_the_operator_name_another_address() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("ip");
        let network = |text: &str| Network::parse(text).expect("network");
        let from = |remote: &str, behind_proxy: bool, proxies: &[Network], lists: &[&str]| {
            let mut headers = HeaderMap::new();
            for list in lists {
                headers.append("x-forwarded-for", list.parse().expect("value"));
            }
            asking_ip(Some(Remote { ip: ip(remote), behind_proxy, proxies: proxies.into() }), &headers).to_string()
        };
        let list = ["198.51.100.1, 203.0.113.9"];
        assert_eq!(from("127.0.0.1", true, &[], &list), "203.0.113.9");
        assert_eq!(from("192.0.2.7", false, &[], &list), "192.0.2.7", "a stranger speaks for itself");
        assert_eq!(from("127.0.0.1", true, &[], &["nonsense"]), "127.0.0.1");
        assert_eq!(from("127.0.0.1", true, &[], &[]), "127.0.0.1");
        let proxies = [network("10.0.0.0/8"), network("203.0.113.9/32")];
        assert_eq!(from("10.0.0.2", true, &proxies, &list), "198.51.100.1", "behind two proxies of the operator's");
        assert_eq!(from("10.0.0.2", true, &proxies, &["198.51.100.1", "10.1.1.1"]), "198.51.100.1");
        assert_eq!(from("10.0.0.2", true, &proxies, &["10.9.9.9, 192.0.2.1, 10.1.1.1"]), "192.0.2.1");
        assert_eq!(from("10.0.0.2", true, &proxies, &["198.51.100.1, nonsense, 10.1.1.1"]), "10.1.1.1");
        let long = ["10.1.1.1"; limits::PROXY_HOPS_MAX + 1].join(",");
        assert_eq!(from("10.0.0.2", true, &proxies, &[&format!("192.0.2.1,{long}")]), "10.1.1.1");
    }
}
