//! A small honest HTTPS server on loopback, under an authority of its own, that answers each path as it was told.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub struct Site {
    pub address: SocketAddr,
    pub ca_pem: String,
    stopping: Arc<AtomicBool>,
}

pub struct Answer {
    turns: Vec<(u16, String, Vec<u8>)>,
    asked: AtomicUsize,
}

#[allow(dead_code)]
impl Answer {
    pub fn new(status: u16, media: &str, body: &str) -> Answer {
        Answer { turns: vec![(status, media.into(), body.into())], asked: AtomicUsize::new(0) }
    }

    pub fn ok(media: &str, body: &str) -> Answer {
        Answer::new(200, media, body)
    }

    pub fn bytes(body: Vec<u8>) -> Answer {
        Answer { turns: vec![(200, "application/octet-stream".into(), body)], asked: AtomicUsize::new(0) }
    }

    /// One answer after the other, from the start again after the last.
    pub fn turns(answers: Vec<Answer>) -> Answer {
        Answer { turns: answers.into_iter().flat_map(|answer| answer.turns).collect(), asked: AtomicUsize::new(0) }
    }

    fn next(&self) -> Vec<u8> {
        let n = self.asked.fetch_add(1, Ordering::SeqCst);
        let (status, media, body) = &self.turns[n % self.turns.len()];
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: {media}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
        );
        [head.into_bytes(), body.clone()].concat()
    }
}

impl Site {
    pub fn start(routes: Vec<(&'static str, Answer)>) -> Site {
        let mut authority = CertificateParams::new(Vec::<String>::new()).expect("params");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("key")).expect("authority");
        let key = KeyPair::generate().expect("key");
        let leaf = CertificateParams::new(vec!["seller.example".to_owned()]).expect("params");
        let leaf = leaf.signed_by(&key, &authority).expect("certificate");
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("versions");
        let config = config.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], private).expect("config");
        let (config, routes) = (Arc::new(config), Arc::new(routes));
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let address = listener.local_addr().expect("address");
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = stopping.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (config, routes) = (config.clone(), routes.clone());
                std::thread::spawn(move || answer(stream, config, &routes));
            }
        });
        Site { address, ca_pem: authority.pem(), stopping }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>, routes: &[(&'static str, Answer)]) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut tls = StreamOwned::new(connection, stream);
    let mut head = Vec::new();
    let mut byte = [0u8; 1];
    while !head.ends_with(b"\r\n\r\n") {
        tls.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split(' ').nth(1)?;
    let route = routes.iter().find(|(known, _)| *known == path);
    let bytes = match route {
        Some((_, answer)) => answer.next(),
        None => b"HTTP/1.1 404 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(),
    };
    tls.write_all(&bytes).ok()?;
    tls.conn.send_close_notify();
    tls.flush().ok()
}
