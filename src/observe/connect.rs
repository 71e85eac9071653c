//! The connection: TCP to a judged address, TLS that is always verified.
//!
//! Promise: nothing is sent to a peer whose address was not judged; no data passes before the certificate is verified for the
//! host of the URL. Every connection is new: no resumption, no early data, no reuse.
//!
//! Deliberately absent: a switch that turns verification off, client certificates, proxies, fetching of missing
//! intermediates, and revocation checks.

use super::{Failure, ObserveError};
use crate::probe::observation::{Cause, Phase};
use crate::time::Timestamp;
use crate::wire::Sha256;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, CipherSuite, ClientConfig, ProtocolVersion, RootCertStore};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// What the handshake proved about the peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    pub address: Option<SocketAddr>,
    pub certificate_sha256: Option<Sha256>,
    pub certificate_not_after: Option<Timestamp>,
    pub tls: Option<String>,
}

pub(super) fn connector(extra_ca_pem: &[Vec<u8>]) -> Result<TlsConnector, ObserveError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for (index, pem) in extra_ca_pem.iter().enumerate() {
        let bad = |reason: String| ObserveError::ExtraCa { index, reason };
        let mut added = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| bad(error.to_string()))?;
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
            added += 1;
        }
        if added == 0 {
            return Err(bad("it holds no certificate".into()));
        }
    }
    let mut provider = rustls::crypto::ring::default_provider();
    // All of them are offered. A server that follows our order takes the cheapest: most of a probe is its handshake, and
    // SHA-256 has instructions of its own where SHA-384 has none.
    provider.cipher_suites.sort_by_key(|suite| !CHEAPEST.contains(&suite.suite()));
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| ObserveError::Tls(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Dials exactly this address, and makes sure that it is who answered.
pub(super) async fn dial(address: SocketAddr) -> Result<TcpStream, Failure> {
    let fail = |reason: String| Failure::new(Phase::Connect, Cause::Network, reason);
    let stream = TcpStream::connect(address).await.map_err(|error| fail(format!("{address}: {}", error.kind())))?;
    let peer = stream.peer_addr().map_err(|error| fail(format!("{address}: {}", error.kind())))?;
    if peer != address {
        return Err(fail(format!("dialled {address}, and {peer} answered")));
    }
    // Without it the request could wait for an acknowledgement; the answer is the same.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

pub(super) async fn handshake(
    tls: &TlsConnector,
    name: ServerName<'static>,
    stream: TcpStream,
    peer: &mut Peer,
) -> Result<TlsStream<TcpStream>, Failure> {
    let fail = |reason: String| Failure::new(Phase::Tls, Cause::Origin, reason);
    let stream = tls.connect(name, stream).await.map_err(|error| fail(handshake_fault(&error)))?;
    let (_, session) = stream.get_ref();
    peer.tls = match session.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => Some("TLSv1.3".into()),
        Some(ProtocolVersion::TLSv1_2) => Some("TLSv1.2".into()),
        _ => return Err(fail("the TLS version is neither 1.2 nor 1.3".into())),
    };
    let leaf = session.peer_certificates().and_then(<[_]>::first).ok_or_else(|| fail("no certificate".into()))?;
    peer.certificate_sha256 = Some(Sha256::of(leaf.as_ref()));
    peer.certificate_not_after = x509_parser::parse_x509_certificate(leaf.as_ref())
        .ok()
        .map(|(_, leaf)| Timestamp::from_millis(leaf.validity().not_after.timestamp().saturating_mul(1_000)));
    Ok(stream)
}

pub(super) fn server_name(host: &super::resolve::Host) -> Option<ServerName<'static>> {
    use super::resolve::Host;
    match host {
        Host::Name(name) => ServerName::try_from(name.clone()).ok(),
        Host::Literal(IpAddr::V4(ip)) => Some(ServerName::from(*ip)),
        Host::Literal(IpAddr::V6(ip)) => Some(ServerName::from(*ip)),
    }
}

/// The TLS fault inside an error of the stream, if that is what it is.
pub(super) fn tls_fault(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// In words that do not change from one look to the next: without the times and names that the library adds.
fn handshake_fault(error: &io::Error) -> String {
    use CertificateError as C;
    let Some(fault) = tls_fault(error) else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server closed the connection during the TLS handshake".into(),
            kind => format!("the TLS handshake broke: {kind}"),
        };
    };
    match fault {
        rustls::Error::InvalidCertificate(fault) => match fault {
            C::Expired | C::ExpiredContext { .. } => "the certificate has expired".into(),
            C::NotValidYet | C::NotValidYetContext { .. } => "the certificate is not valid yet".into(),
            C::NotValidForName | C::NotValidForNameContext { .. } => "the certificate is for another name".into(),
            C::UnknownIssuer => "the certificate does not lead to a trusted root, or an intermediate is missing".into(),
            C::BadSignature => "a signature of the certificate chain or of the handshake is wrong".into(),
            C::InvalidPurpose | C::InvalidPurposeContext { .. } => "the certificate is not for servers".into(),
            C::Revoked => "the certificate is revoked".into(),
            other => format!("the certificate is not valid: {other}"),
        },
        rustls::Error::AlertReceived(alert) => format!("the server refused the TLS handshake: {alert:?}"),
        rustls::Error::PeerIncompatible(_) => "the server offers no TLS version or cipher that is accepted".into(),
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS on this port".into(),
        other => format!("the TLS handshake failed: {other}"),
    }
}

const CHEAPEST: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];
