//! The deliverable of the demonstration: a few files over HTTPS on loopback, under an authority made for the occasion.

use crate::cli::output::Failure;
use crate::refusal::Exit;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

pub struct Site {
    pub address: SocketAddr,
    /// What whoever visits must trust.
    pub ca_pem: String,
    task: tokio::task::JoinHandle<()>,
}

/// A file of the site.
#[derive(Clone, Debug)]
pub struct Page {
    pub path: &'static str,
    pub media: &'static str,
    pub body: Vec<u8>,
}

impl Site {
    pub async fn start(host: &str, pages: Vec<Page>) -> Result<Site, Failure> {
        let (ca_pem, config) =
            certificate(host).map_err(|why| Failure::new(Exit::Bug, "no certificate could be made").why(why))?;
        let fault =
            |error| Failure::new(Exit::Unreachable, "the demonstration's site cannot listen on 127.0.0.1").why(error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        let task = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), Arc::new(pages)));
        Ok(Site { address, ca_pem, task })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, pages: Arc<Vec<Page>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let (tls, pages) = (tls.clone(), pages.clone());
        // One visitor that stays away delays nobody else.
        tokio::spawn(async move { tokio::time::timeout(VISIT, answer(stream, tls, &pages)).await });
    }
}

async fn answer(stream: TcpStream, tls: TlsAcceptor, pages: &[Page]) -> std::io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut head = Vec::new();
    let mut piece = [0u8; 2_048];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await?;
        if read == 0 || head.len() + read > HEAD_BYTES_MAX {
            return Ok(());
        }
        head.extend_from_slice(piece.get(..read).unwrap_or_default());
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or("/");
    let page = pages.iter().find(|page| page.path == path);
    let (status, media, body) = match page {
        Some(page) => ("200 OK", page.media, page.body.as_slice()),
        None => ("404 Not Found", "text/plain", &b"no such file\n"[..]),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {media}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.shutdown().await
}

fn certificate(host: &str) -> Result<(String, ServerConfig), String> {
    let text = |error: rcgen::Error| error.to_string();
    let mut authority = CertificateParams::new(Vec::<String>::new()).map_err(text)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.distinguished_name.push(rcgen::DnType::CommonName, "verifica demo authority");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().map_err(text)?).map_err(text)?;
    let key = KeyPair::generate().map_err(text)?;
    let leaf =
        CertificateParams::new(vec![host.to_owned()]).map_err(text)?.signed_by(&key, &authority).map_err(text)?;
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let chain: Vec<CertificateDer<'static>> = vec![leaf.der().clone()];
    let config = ServerConfig::builder_with_provider(crate::client::tls::provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| error.to_string())?;
    Ok((authority.pem(), config))
}

const VISIT: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 16_384;
