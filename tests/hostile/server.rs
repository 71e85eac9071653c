//! A TLS server that follows a script, step by step, and remembers who came and what they asked.

use super::pki::Identity;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, ServerConfig};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    /// The same bytes again and again, until the client has gone.
    Endless(Vec<u8>),
    /// Byte by byte, with a pause after each.
    Drip(Vec<u8>, u64),
    Wait(u64),
    /// close_notify, then FIN.
    Notify,
    /// FIN without close_notify.
    Fin,
    /// RST, when what was sent has had time to be read.
    Reset,
    /// Neither speaks nor closes.
    Hang,
}

pub fn send(text: impl Into<Vec<u8>>) -> Step {
    Step::Send(text.into())
}

/// Where the script begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// As soon as TCP is there; no TLS.
    Tcp,
    /// After the handshake, before the request is read.
    Handshake,
    /// After the request.
    Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    V12,
    V13,
    /// As 1.3, but offering only h2 by ALPN.
    OnlyH2,
}

type Script = Arc<dyn Fn(usize) -> (Stage, Vec<Step>) + Send + Sync>;

pub struct Server {
    pub address: SocketAddr,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
    requests: Mutex<Vec<Vec<u8>>>,
    names: Mutex<Vec<Option<String>>>,
    resumed: AtomicUsize,
}

impl Server {
    pub async fn start(identity: Identity, steps: Vec<Step>) -> Self {
        Self::scripted("127.0.0.1:0", identity, Tls::V13, move |_| (Stage::Request, steps.clone())).await
    }

    /// `script` gets the number of the connection, from 0.
    pub async fn scripted(
        bind: &str,
        identity: Identity,
        tls: Tls,
        script: impl Fn(usize) -> (Stage, Vec<Step>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(bind).await.expect("a loopback address");
        let address = listener.local_addr().expect("an address");
        let acceptor = TlsAcceptor::from(Arc::new(server_config(identity, tls)));
        let seen = Arc::new(Seen::default());
        let script: Script = Arc::new(script);
        let task = tokio::spawn(accept(listener, acceptor, script, Arc::clone(&seen)));
        Server { address, seen, task }
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// The largest number of connections that were open at once.
    pub fn most_open(&self) -> usize {
        self.seen.most_open.load(Ordering::SeqCst)
    }

    pub fn resumed(&self) -> usize {
        self.seen.resumed.load(Ordering::SeqCst)
    }

    pub fn requests(&self) -> Vec<String> {
        let requests = self.seen.requests.lock().expect("no panic");
        requests.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    pub fn server_names(&self) -> Vec<Option<String>> {
        self.seen.names.lock().expect("no panic").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn server_config(identity: Identity, tls: Tls) -> ServerConfig {
    // Not checked: a server may show a certificate that is not its own.
    let key = rustls::crypto::ring::sign::any_supported_type(&identity.key).expect("a key");
    let certified = CertifiedKey::new(identity.chain, key);
    let versions = if tls == Tls::V12 { &[&TLS12] } else { &[&TLS13] };
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    if tls == Tls::OnlyH2 {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    config
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, script: Script, seen: Arc<Seen>) {
    while let Ok((stream, _)) = listener.accept().await {
        let number = seen.connections.fetch_add(1, Ordering::SeqCst);
        let (stage, steps) = script(number);
        let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
        tokio::spawn(async move {
            let open = seen.open.fetch_add(1, Ordering::SeqCst) + 1;
            seen.most_open.fetch_max(open, Ordering::SeqCst);
            serve(stream, acceptor, stage, steps, &seen).await;
            seen.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn serve(mut stream: TcpStream, acceptor: TlsAcceptor, stage: Stage, steps: Vec<Step>, seen: &Seen) {
    let _ = stream.set_nodelay(true);
    if stage == Stage::Tcp {
        let last = play(&mut stream, &steps).await;
        return end(stream, last).await;
    }
    let Ok(mut tls) = acceptor.accept(stream).await else { return };
    let session = tls.get_ref().1;
    seen.names.lock().expect("no panic").push(session.server_name().map(ToString::to_string));
    if session.handshake_kind() == Some(HandshakeKind::Resumed) {
        seen.resumed.fetch_add(1, Ordering::SeqCst);
    }
    if stage == Stage::Request {
        let mut request = Vec::new();
        let mut buffer = [0; 1_024];
        while !request.ends_with(b"\r\n\r\n") {
            match tls.read(&mut buffer).await {
                Ok(n) if n > 0 => request.extend_from_slice(&buffer[..n]),
                _ => return,
            }
        }
        seen.requests.lock().expect("no panic").push(request);
    }
    let last = play(&mut tls, &steps).await;
    if last == Some(Last::Notify) {
        let _ = tls.shutdown().await;
    }
    end(tls.into_inner().0, last).await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Notify,
    Fin,
    Reset,
    Hang,
}

/// `None` when the client has gone.
async fn play<S: AsyncWrite + Unpin>(stream: &mut S, steps: &[Step]) -> Option<Last> {
    for step in steps {
        match step {
            Step::Send(bytes) => put(stream, bytes).await?,
            Step::Endless(bytes) => loop {
                put(stream, bytes).await?;
            },
            Step::Drip(bytes, pause) => {
                for byte in bytes {
                    put(stream, &[*byte]).await?;
                    tokio::time::sleep(Duration::from_millis(*pause)).await;
                }
            }
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            Step::Notify => return Some(Last::Notify),
            Step::Fin => return Some(Last::Fin),
            Step::Reset => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                return Some(Last::Reset);
            }
            Step::Hang => return Some(Last::Hang),
        }
    }
    Some(Last::Notify)
}

async fn put<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Option<()> {
    stream.write_all(bytes).await.ok()?;
    stream.flush().await.ok()
}

async fn end(stream: TcpStream, last: Option<Last>) {
    match last {
        Some(Last::Reset) => {
            stream.set_zero_linger().expect("linger");
        }
        // Until the client has had enough.
        Some(Last::Hang) => {
            let mut rest = stream;
            let mut buffer = [0; 1_024];
            while matches!(rest.read(&mut buffer).await, Ok(n) if n > 0) {}
        }
        _ => {}
    }
}
