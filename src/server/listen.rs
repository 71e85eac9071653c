//! The listener: plain HTTP or TLS, bounded connections, and an end in order.
//!
//! A connection has bounds on its head, its handshake and its age, so no stranger holds one for ever; and when all places
//! are taken, whoever has waited longest without asking anything makes room for whoever comes. On a drain the
//! listener closes first, each connection ends after the request it is serving, and what is left at the deadline is cut.

use super::routes::Remote;
use crate::limits;
use crate::probe::address::Network;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The TLS side of a listener; its certificate can be replaced while it runs.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<rustls::ServerConfig>>>);

pub struct Listener {
    local: SocketAddr,
    slots: Arc<Semaphore>,
    cut: CancellationToken,
    accepting: tokio::task::JoinHandle<()>,
}

impl Tls {
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Tls, String> {
        Ok(Tls(Arc::new(RwLock::new(Arc::new(server_config(certificates, key)?)))))
    }

    /// New connections use the new certificate; a pair that does not fit changes nothing.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), String> {
        let fresh = Arc::new(server_config(certificates, key)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    fn current(&self) -> Arc<rustls::ServerConfig> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Listener {
    /// Starts to accept; `stopping` makes it stop accepting and its connections end in order.
    pub fn start(
        listener: TcpListener,
        tls: Option<Tls>,
        router: Router,
        proxies: Vec<Network>,
        stopping: CancellationToken,
    ) -> io::Result<Listener> {
        let local = listener.local_addr()?;
        let slots = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX));
        let cut = CancellationToken::new();
        let serving = Serving {
            tls,
            router,
            proxies: proxies.into(),
            stopping: stopping.clone(),
            cut: cut.clone(),
            per_ip: Arc::new(Mutex::new(HashMap::new())),
            idle: Arc::default(),
        };
        let accepting = tokio::spawn(accept(listener, serving, slots.clone()));
        Ok(Listener { local, slots, cut, accepting })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits until every connection has ended, at most so long; answers how many were cut.
    pub async fn drained(self, within: Duration) -> usize {
        let all = limits::CONNECTIONS_MAX as u32;
        let ended = tokio::time::timeout(within, self.slots.acquire_many(all)).await.is_ok();
        let left = if ended { 0 } else { limits::CONNECTIONS_MAX - self.slots.available_permits() };
        self.cut.cancel();
        self.accepting.abort();
        left
    }
}

#[derive(Clone)]
struct Serving {
    tls: Option<Tls>,
    router: Router,
    proxies: Arc<[Network]>,
    stopping: CancellationToken,
    cut: CancellationToken,
    per_ip: Arc<Mutex<HashMap<IpAddr, usize>>>,
    idle: Arc<Idle>,
}

async fn accept(listener: TcpListener, serving: Serving, slots: Arc<Semaphore>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = serving.stopping.cancelled() => return,
        };
        match accepted {
            Ok((stream, from)) => {
                // Without a place, one who asks nothing goes; if nobody does, those who come wait in the kernel's queue.
                if slots.available_permits() == 0 {
                    serving.idle.shed();
                }
                let permit = tokio::select! {
                    permit = slots.clone().acquire_owned() => permit,
                    () = serving.stopping.cancelled() => return,
                };
                let Ok(permit) = permit else { return };
                if let Some(counted) = Counted::enter(&serving.per_ip, from.ip()) {
                    let serving = serving.clone();
                    tokio::spawn(async move { serving.connection(stream, from.ip(), permit, counted).await });
                }
            }
            Err(error) => {
                tracing::warn!(event = "accept_failed", error = %error);
                // Out of descriptors, most likely: give those that are open time to close.
                tokio::time::sleep(Duration::from_millis(limits::ACCEPT_PAUSE_MS)).await;
            }
        }
    }
}

impl Serving {
    async fn connection(self, stream: TcpStream, ip: IpAddr, permit: OwnedSemaphorePermit, counted: Counted) {
        drop(stream.set_nodelay(true));
        let ip = ip.to_canonical();
        let beside = self.tls.is_none() && ip.is_loopback();
        let remote = Remote { ip, behind_proxy: beside || self.trusts(ip), proxies: self.proxies.clone() };
        let place = Arc::new(Place::new(self.idle.clone()));
        match &self.tls {
            None => self.serve(stream, remote, &place).await,
            Some(tls) => {
                let handshake = tokio_rustls::TlsAcceptor::from(tls.current()).accept(stream);
                let bound = Duration::from_millis(limits::TLS_ACCEPT_MS);
                let shaken = tokio::select! {
                    shaken = tokio::time::timeout(bound, handshake) => shaken,
                    () = place.shed.cancelled() => return,
                };
                if let Ok(Ok(stream)) = shaken {
                    self.serve(stream, remote, &place).await;
                }
            }
        }
        drop((permit, counted));
    }

    fn trusts(&self, ip: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(ip))
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        remote: Remote,
        place: &Arc<Place>,
    ) {
        let (router, at) = (self.router.clone(), place.clone());
        let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            let busy = Busy::new(at.clone());
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(remote.clone());
            let answer = router.clone().oneshot(request);
            async move {
                let answered = answer.await;
                answered.map(|response| response.map(|body| Answered { body, _busy: busy }))
            }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(Duration::from_millis(limits::HEAD_READ_MS))
            .max_headers(limits::HTTP_HEADERS_MAX)
            .max_header_size(limits::HTTP_HEAD_MAX)
            .half_close(true);
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
        let aged = tokio::time::sleep(Duration::from_millis(limits::CONNECTION_AGE_MS));
        tokio::select! {
            // A broken connection is the stranger's business.
            _ = connection.as_mut() => return,
            () = self.cut.cancelled() => return,
            () = place.shed.cancelled() => return,
            () = self.stopping.cancelled() => {}
            () = aged => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = connection => {}
            () = self.cut.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(limits::CONNECTION_END_MS)) => {}
        }
    }
}

/// Connections on which nothing is asked, by the order in which they came to be so.
#[derive(Default)]
struct Idle(Mutex<(u64, BTreeMap<u64, CancellationToken>)>);

impl Idle {
    fn enter(&self, shed: &CancellationToken) -> u64 {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.0 += 1;
        let number = idle.0;
        idle.1.insert(number, shed.clone());
        number
    }

    fn leave(&self, number: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&number);
    }

    /// Ends the one that has been idle longest, if there is one.
    fn shed(&self) {
        let oldest = self.0.lock().unwrap_or_else(PoisonError::into_inner).1.pop_first();
        if let Some((_, shed)) = oldest {
            shed.cancel();
        }
    }
}

/// One connection's place among the idle ones, while nothing is asked on it.
struct Place {
    idle: Arc<Idle>,
    shed: CancellationToken,
    number: Mutex<u64>,
}

impl Place {
    fn new(idle: Arc<Idle>) -> Place {
        let shed = CancellationToken::new();
        let number = Mutex::new(idle.enter(&shed));
        Place { idle, shed, number }
    }

    fn number(&self) -> MutexGuard<'_, u64> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.idle.leave(*self.number());
    }
}

/// A request is being answered; with its last byte the connection is idle again.
struct Busy(Arc<Place>);

impl Busy {
    fn new(place: Arc<Place>) -> Busy {
        place.idle.leave(*place.number());
        Busy(place)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.number() = self.0.idle.enter(&self.0.shed);
    }
}

/// The body of an answer, and that it is not over.
struct Answered {
    body: Body,
    _busy: Busy,
}

impl http_body::Body for Answered {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// One connection of an address, counted as long as it lives.
struct Counted {
    per_ip: Arc<Mutex<HashMap<IpAddr, usize>>>,
    ip: IpAddr,
}

impl Counted {
    fn enter(per_ip: &Arc<Mutex<HashMap<IpAddr, usize>>>, ip: IpAddr) -> Option<Counted> {
        let ip = ip.to_canonical();
        let mut counts = per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(ip).or_insert(0);
        if *count >= limits::CONNECTIONS_PER_IP_MAX && !ip.is_loopback() {
            return None;
        }
        *count += 1;
        Some(Counted { per_ip: per_ip.clone(), ip })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.per_ip.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.ip);
            }
        }
    }
}

fn server_config(certificates: &[u8], key: &[u8]) -> Result<rustls::ServerConfig, String> {
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    let certificates = crate::client::tls::certificates(certificates)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| format!("not a PEM text of a private key: {e}"))?;
    let mut config = rustls::ServerConfig::builder_with_provider(crate::client::tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("no usable TLS version: {e}"))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|e| format!("the certificate and the key do not make a pair: {e}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_holds_only_so_many_connections() {
        let per_ip = Arc::new(Mutex::new(HashMap::new()));
        let far: IpAddr = "192.0.2.1".parse().expect("ip");
        let mut held: Vec<Counted> =
            (0..limits::CONNECTIONS_PER_IP_MAX).map(|_| Counted::enter(&per_ip, far).expect("within")).collect();
        assert!(Counted::enter(&per_ip, far).is_none());
        assert!(Counted::enter(&per_ip, "192.0.2.2".parse().expect("ip")).is_some());
        held.pop();
        assert!(Counted::enter(&per_ip, far).is_some());
        drop(held);
        assert!(per_ip.lock().expect("lock").is_empty());
    }

    #[test]
    fn whoever_was_idle_longest_makes_room_and_whoever_is_answered_does_not() {
        let idle = Arc::new(Idle::default());
        let places: Vec<Arc<Place>> = (0..3).map(|_| Arc::new(Place::new(idle.clone()))).collect();
        let shed = || places.iter().map(|place| place.shed.is_cancelled()).collect::<Vec<bool>>();
        let busy = Busy::new(places[0].clone());
        idle.shed();
        assert_eq!(shed(), [false, true, false]);
        drop(busy);
        idle.shed();
        assert_eq!(shed(), [false, true, true], "idle again is idle anew");
        idle.shed();
        assert_eq!(shed(), [true, true, true]);
        idle.shed();
        drop(places);
        assert!(idle.0.lock().expect("lock").1.is_empty());
    }

    #[test]
    fn a_certificate_that_does_not_fit_its_key_is_refused() {
        let one = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).expect("certificate");
        let two = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).expect("certificate");
        let tls = Tls::from_pem(one.cert.pem().as_bytes(), one.signing_key.serialize_pem().as_bytes()).expect("pair");
        let before = tls.current();
        let crossed = tls.replace(one.cert.pem().as_bytes(), two.signing_key.serialize_pem().as_bytes());
        assert!(crossed.is_err());
        assert!(Arc::ptr_eq(&before, &tls.current()));
        assert!(tls.replace(two.cert.pem().as_bytes(), two.signing_key.serialize_pem().as_bytes()).is_ok());
    }
}
